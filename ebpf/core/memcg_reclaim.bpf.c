// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Reclaim of one cgroup: because of its own limits, or because somebody wrote to its memory.reclaim. Only counted.
 *
 *   try_to_free_mem_cgroup_pages(memcg, ...)      memcg_reclaim_begin: whose, and since when
 *     mm_vmscan_memcg_reclaim_end(pages)          memcg_reclaim_end: how long it took and what it gave
 *
 * The end is taken from the tracepoint because the function's own return is in another place on every other kernel.
 */
#include "shared.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct reclaim {
	u64 cgroup;
	u64 since_ns;
};

/* By the thread that reclaims. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, u32);
	__type(value, struct reclaim);
} MEMCG_RECLAIMS SEC(".maps");

SEC("fentry/try_to_free_mem_cgroup_pages")
int BPF_PROG(memcg_reclaim_begin, struct mem_cgroup *memcg)
{
	u32 thread = bpf_get_current_pid_tgid();
	struct cgroup *cgroup = memcg->css.cgroup;
	struct reclaim reclaim = { .since_ns = bpf_ktime_get_boot_ns() };

	if (is_v2(cgroup)) {
		reclaim.cgroup = cgroup->kn->id;
		bpf_map_update_elem(&MEMCG_RECLAIMS, &thread, &reclaim, BPF_ANY);
	}
	return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int BPF_PROG(memcg_reclaim_end, unsigned long pages)
{
	u32 thread = bpf_get_current_pid_tgid();
	struct reclaim *reclaim = bpf_map_lookup_elem(&MEMCG_RECLAIMS, &thread);
	struct ebb_counters *counters;

	if (!reclaim)
		return 0;
	counters = totals(reclaim->cgroup);
	if (counters) {
		add(&counters->memcg_reclaims, 1);
		add(&counters->memcg_reclaim_ns, bpf_ktime_get_boot_ns() - reclaim->since_ns);
		add(&counters->reclaimed_pages, pages);
	}
	bpf_map_delete_elem(&MEMCG_RECLAIMS, &thread);
	return 0;
}
