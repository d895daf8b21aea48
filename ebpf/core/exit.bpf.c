// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * A process has ended, exactly once per process, with how it ended and when it had started.
 *
 * Two programs for the two forms of the tracepoint; the loader attaches one of them.
 */
#include "shared.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* A process whose end has been told, so that two threads which end together do not both tell it. */
struct process {
	u64 start_ns;
	u64 pid;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct process);
	__type(value, u8);
} ENDED SEC(".maps");

/* The current task is the one that ends, and still in its cgroup. */
static __always_inline void send_exit(struct task_struct *task)
{
	struct task_struct *leader = task->group_leader;
	struct filling vital = filling(&VITAL);
	struct ebb_exit *exit;
	int code;

	if (!vital_has_room(vital)) {
		lose(EBB_KIND_EXIT);
		return;
	}
	exit = begin_record(&VITAL, struct ebb_exit, EBB_KIND_EXIT);
	if (!exit)
		return;
	exit->cgroup = bpf_get_current_cgroup_id();
	exit->start_ns = leader->start_boottime;
	exit->pid = task->tgid;
	exit->ppid = task->real_parent->tgid;
	/* As wait(2) will report it. */
	code = task->signal->group_exit_code;
	exit->status = code ? code : leader->exit_code;
	exit->flags = EBB_EXIT_STATUS;
	copy_comm(exit->comm, leader);
	bpf_ringbuf_submit(exit, unhurried(vital, EBB_UNHURRIED_VITAL, exit->header.ts_ns));
}

/* Where the kernel says itself that this thread is the last of its process. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(exit_group_dead, struct task_struct *task, bool group_dead)
{
	if (group_dead)
		send_exit(task);
	return 0;
}

/*
 * Elsewhere: when no thread is alive any more. Threads that end at the same time all see that, and each of them sees either
 * the others not yet reaped (then the first to mark the process wins) or the mark of one that is.
 */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(exit_live, struct task_struct *task)
{
	struct signal_struct *signal = task->signal;
	struct process process = {};
	u8 told = 1;

	if (signal->live.counter != 0)
		return 0;
	process.start_ns = task->group_leader->start_boottime;
	process.pid = task->tgid;
	if (signal->nr_threads > 1) {
		if (bpf_map_update_elem(&ENDED, &process, &told, BPF_NOEXIST) == -17 /* EEXIST */)
			return 0;
	} else if (bpf_map_lookup_elem(&ENDED, &process)) {
		return 0;
	}
	send_exit(task);
	return 0;
}
