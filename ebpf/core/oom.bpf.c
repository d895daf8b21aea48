// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The kernel's OOM killer: whom it takes, and whose limit made it.
 *
 *   out_of_memory(oc)                 oom_begin: the limit, noted under the current thread
 *     mark_oom_victim(task)           oom_victim: one record per victim, with the limit if there is a note
 *     ...                             (a group kill marks several)
 *   return                            oom_end: the note is torn up
 *
 * The current task is whoever asked for memory; it says nothing about the victim.
 */
#include "shared.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct limit {
	u64 cgroup;
	u32 whose;
	u32 reserved;
};

/* What the OOM killer is at work for, by the thread that it works in. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, u32);
	__type(value, struct limit);
} OOM_LIMITS SEC(".maps");

SEC("fentry/out_of_memory")
int BPF_PROG(oom_begin, struct oom_control *oc)
{
	u32 thread = bpf_get_current_pid_tgid();
	struct limit limit = { .whose = EBB_OOM_LIMIT_NODE };
	struct mem_cgroup *memcg = oc->memcg;

	if (memcg) {
		struct cgroup *cgroup = memcg->css.cgroup;

		limit.whose = is_v2(cgroup) ? EBB_OOM_LIMIT_CGROUP : EBB_OOM_LIMIT_CGROUP_V1;
		limit.cgroup = cgroup->kn->id;
	}
	bpf_map_update_elem(&OOM_LIMITS, &thread, &limit, BPF_ANY);
	return 0;
}

SEC("fexit/out_of_memory")
int BPF_PROG(oom_end)
{
	u32 thread = bpf_get_current_pid_tgid();

	bpf_map_delete_elem(&OOM_LIMITS, &thread);
	return 0;
}

static __always_inline int victim(struct task_struct *task)
{
	u32 thread = bpf_get_current_pid_tgid();
	struct limit *limit = bpf_map_lookup_elem(&OOM_LIMITS, &thread);
	struct ebb_oom_kill *kill;

	kill = begin_record(&VITAL, struct ebb_oom_kill, EBB_KIND_OOM_KILL);
	if (!kill)
		return 0;
	kill->victim_cgroup = task->cgroups->dfl_cgrp->kn->id;
	kill->limit_cgroup = limit ? limit->cgroup : 0;
	kill->start_ns = task->group_leader->start_boottime;
	kill->pid = task->tgid;
	kill->oom_score_adj = task->signal->oom_score_adj;
	kill->limit = limit ? limit->whose : EBB_OOM_LIMIT_UNKNOWN;
	kill->reserved = 0;
	copy_comm(kill->comm, task);
	bpf_ringbuf_submit(kill, BPF_RB_FORCE_WAKEUP);
	return 0;
}

SEC("fentry/mark_oom_victim")
int BPF_PROG(oom_victim, struct task_struct *task)
{
	return victim(task);
}

/* Where functions cannot be traced. */
SEC("tp_btf/mark_victim")
int BPF_PROG(oom_victim_tp, struct task_struct *task)
{
	return victim(task);
}
