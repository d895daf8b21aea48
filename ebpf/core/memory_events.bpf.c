// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * A counter in a cgroup's memory.events has changed: one of its limits is at work. At the cgroup where it happened, not again at
 * each of its ancestors.
 *
 * A workload at its limit causes thousands of these in a second: all are counted, few are sent.
 */
#include "shared.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* One record per cgroup and counter in this time. */
#define GAP_NS 100000000ULL

struct source {
	u64 cgroup;
	u64 which;
};

struct gate {
	u64 sent_ns;
	u64 folded;
};

/* When a record was last sent, and how many events were swallowed since. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct source);
	__type(value, struct gate);
} MEMORY_GATES SEC(".maps");

static __always_inline int memory_changed(u64 cgroup, u32 which)
{
	struct source source = { .cgroup = cgroup, .which = which };
	struct ebb_counters *counters = totals(cgroup);
	struct gate *gate = bpf_map_lookup_elem(&MEMORY_GATES, &source);
	u64 now = bpf_ktime_get_boot_ns();
	struct ebb_memory_event *event;
	u32 folded = 0;

	if (counters)
		add(&counters->memory_events, 1);
	if (gate && now - gate->sent_ns < GAP_NS) {
		add(&gate->folded, 1);
		return 0;
	}
	if (gate) {
		folded = gate->folded;
		gate->sent_ns = now;
		gate->folded = 0;
	} else {
		struct gate shut = { .sent_ns = now };

		bpf_map_update_elem(&MEMORY_GATES, &source, &shut, BPF_ANY);
	}
	event = begin_record(&EVENTS, struct ebb_memory_event, EBB_KIND_MEMORY_EVENT);
	if (!event)
		return 0;
	event->cgroup = cgroup;
	event->which = which;
	event->folded = folded;
	bpf_ringbuf_submit(event, unhurried(filling(&EVENTS), EBB_UNHURRIED_EVENTS, event->header.ts_ns));
	return 0;
}

#define is(event, name)                                                        \
	(bpf_core_enum_value_exists(enum memcg_memory_event, MEMCG_##name) &&  \
	 (event) == bpf_core_enum_value(enum memcg_memory_event, MEMCG_##name))

static __always_inline u32 which_is(u32 event)
{
	if (is(event, LOW))
		return EBB_WHICH_LOW;
	if (is(event, HIGH))
		return EBB_WHICH_HIGH;
	if (is(event, MAX))
		return EBB_WHICH_MAX;
	if (is(event, OOM))
		return EBB_WHICH_OOM;
	if (is(event, OOM_KILL))
		return EBB_WHICH_OOM_KILL;
	if (is(event, OOM_GROUP_KILL))
		return EBB_WHICH_OOM_GROUP_KILL;
	if (is(event, SWAP_HIGH))
		return EBB_WHICH_SWAP_HIGH;
	if (is(event, SWAP_MAX))
		return EBB_WHICH_SWAP_MAX;
	if (is(event, SWAP_FAIL))
		return EBB_WHICH_SWAP_FAIL;
	if (is(event, SOCK_THROTTLED))
		return EBB_WHICH_SOCK_THROTTLED;
	return EBB_WHICH_UNKNOWN;
}

/* Where the kernel counts in a function of its own: says which counter. */
SEC("fentry/__memcg_memory_event")
int BPF_PROG(memory_event, struct mem_cgroup *memcg, u32 event)
{
	struct cgroup *cgroup = memcg->css.cgroup;

	return is_v2(cgroup) ? memory_changed(cgroup->kn->id, which_is(event)) : 0;
}

static __always_inline u64 parent_id(struct kernfs_node *kn)
{
	struct kernfs_node___new *new = (void *)kn;
	struct kernfs_node___old *old = (void *)kn;

	if (bpf_core_field_exists(new->__parent))
		return new->__parent->id;
	return old->parent->id;
}

/*
 * Elsewhere: where the readers of a cgroup's files are told. memory.events.local tells of the cgroup's own events, and only
 * where that file is in use; memory.events is told again for every ancestor.
 */
SEC("fentry/cgroup_file_notify")
int BPF_PROG(memory_file_notify, struct cgroup_file *cfile)
{
	static const char wanted[] = "memory.events.local";
	struct kernfs_node *kn = cfile->kn;
	char name[sizeof(wanted)] = {};
	u64 cgroup;

	bpf_probe_read_kernel_str(name, sizeof(name), kn->name);
#pragma unroll
	for (int i = 0; i < (int)sizeof(wanted); i++)
		if (name[i] != wanted[i])
			return 0;
	cgroup = parent_id(kn);
	return cgroup ? memory_changed(cgroup, EBB_WHICH_UNKNOWN) : 0;
}
