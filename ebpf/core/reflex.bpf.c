// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Ending what user space has named, at a line that user space has drawn, without waiting for user space to be scheduled.
 *
 *            reflex_arm                          pull: the line is crossed
 *   FREE ───────────────► ARMED (until the lease ends) ───────────────► SHOT ─ reflex_arm, once it has seen it ─► FREE
 *     ◄──────────────────── lease over, or disarmed
 *
 * A shot is fired once, at processes that were looked at when they were named and are looked at again: same start, same
 * cgroup. One that is not the one that was named stops the shot altogether; one that has ended does not.
 * Where user space says so, nobody is shot for what somebody else takes: by what the memory has fallen since they were named,
 * half must have gone to the cgroup that was named.
 * What the counters leave out is what user space reads more or less than they say. The kernel looks before it reads and
 * after: a reading that memory came or went around, or that was held up, says nothing, and what was known before stands.
 * The line is watched by a timer, which waits as long as the room above it allows and runs only while the lease does, and
 * at the begin of every reclaim. The kernel lets a program send a signal only while a user's address space is in use, which
 * is not so when a timer finds its processor idle: then the next user's page fault or reclaim fires, which below the line is
 * as a rule the leak's own.
 */
#include "counters.h"
#include "kernel.h"
#include "wire.h"
#include <bpf_core_read.h>
#include <bpf_helpers.h>
#include <bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

enum { CLOCK_BOOTTIME = 7, SIGKILL = 9, PF_KTHREAD = 0x00200000, OOM_SCORE_ADJ_MIN = -1000 };

/* Nothing takes memory faster than 8 GiB/s: half a nanosecond for each byte of room, 2 us for a page of 4 KiB. */
#define WAIT_PER_PAGE_NS 512ULL
#define WAIT_LEAST_NS 250000ULL
#define WAIT_MOST_NS 20000000ULL
/* Start times are shown to user space in these. */
#define TICK_NS 10000000ULL
/* Cgroups between a process and the one that was named. */
#define MOST_LEVELS 16

/* What user space asks for; read by reflex_arm. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ebb_arm);
} ASKED SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ebb_reflex);
} REFLEX SEC(".maps");

/* Numbers differ between kernels, names do not. */
enum pid_type {
	PIDTYPE_TGID = 1,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct page_counter {
	atomic_long_t usage;
};

struct mem_cgroup___counted {
	struct page_counter memory;
};

struct cgroup___controlled {
	struct cgroup_subsys_state *subsys[1];
};

struct mm_struct;

struct task_struct___more {
	unsigned int flags;
	struct mm_struct *mm;
};

#pragma clang attribute pop

extern struct task_struct *bpf_task_from_pid(s32 pid) __weak __ksym;
extern void bpf_task_release(struct task_struct *task) __weak __ksym;
extern int bpf_send_signal_task(struct task_struct *task, int signal, enum pid_type type,
				u64 value) __weak __ksym;

/* Change a state that must be what it is taken for; false when somebody was faster. */
static __always_inline bool turn(u32 *state, u32 from, u32 to)
{
	return __sync_val_compare_and_swap(state, from, to) == from;
}

/* Available memory in pages, as user space measures it. */
static __always_inline bool measure(struct ebb_reflex *reflex, s64 *pages)
{
	if (!count_pages(&reflex->gauge, pages))
		return false;
	*pages += reflex->base;
	return true;
}

/* Take over what user space has just read; returns MEASURED when it counts. */
static __always_inline int calibrate(struct ebb_reflex *reflex, struct ebb_arm *asked)
{
	s64 pages, moved;

	if (!count_pages(&asked->gauge, &pages))
		return EBB_ANSWER_UNKNOWN;
	moved = pages - reflex->before;
	if (moved > asked->slack || -moved > asked->slack)
		return EBB_ANSWER_DISTURBED;
	reflex->base = asked->available - pages;
	return EBB_ANSWER_MEASURED;
}

/* Whether a process may be ended at all. */
static __always_inline bool may_end(struct task_struct *task, s32 agent)
{
	struct task_struct___more *more = (void *)task;

	return task->tgid != 1 && task->tgid != agent && !(more->flags & PF_KTHREAD) &&
	       task->signal->oom_score_adj != OOM_SCORE_ADJ_MIN;
}

/* Whether it is the one that was named: the same process, still where it was. */
static __always_inline bool is_same(struct task_struct *task, struct ebb_target *target)
{
	return task->tgid == target->pid && task->start_boottime == target->start_ns &&
	       task->cgroups->dfl_cgrp->kn->id == target->cgroup;
}

/* Look again at one that was named. */
static long check(u32 index, void *context)
{
	struct ebb_reflex *reflex = *(struct ebb_reflex **)context;
	struct ebb_target *target;
	struct task_struct *task;

	if (index >= EBB_REFLEX_TARGETS)
		return 1;
	target = &reflex->targets[index];
	if (target->fate == EBB_FATE_KILLED)
		return 0;
	task = bpf_task_from_pid(target->pid);
	if (!task) {
		target->fate = EBB_FATE_GONE;
		return 0;
	}
	if (!is_same(task, target) || !may_end(task, reflex->agent)) {
		target->fate = EBB_FATE_DOUBT;
		reflex->doubts++;
	}
	bpf_task_release(task);
	return 0;
}

/* End one that was named, after one more look. */
static long end(u32 index, void *context)
{
	struct ebb_reflex *reflex = *(struct ebb_reflex **)context;
	struct ebb_target *target;
	struct task_struct *task;

	if (index >= EBB_REFLEX_TARGETS)
		return 1;
	target = &reflex->targets[index];
	if (target->fate == EBB_FATE_GONE || target->fate == EBB_FATE_KILLED)
		return 0;
	task = bpf_task_from_pid(target->pid);
	if (!task) {
		target->fate = EBB_FATE_GONE;
		return 0;
	}
	if (is_same(task, target) && may_end(task, reflex->agent)) {
		if (bpf_send_signal_task(task, SIGKILL, bpf_core_enum_value(enum pid_type, PIDTYPE_TGID), 0)) {
			/* Signals that cannot be sent from here wait their turn, one for each processor. */
			target->fate = EBB_FATE_REFUSED;
			reflex->refused++;
		} else {
			target->fate = EBB_FATE_KILLED;
			reflex->killed++;
		}
	} else {
		target->fate = EBB_FATE_DOUBT;
		reflex->doubts++;
	}
	bpf_task_release(task);
	return 0;
}

/* The cgroup with that number: this one, or one above it. */
static __always_inline struct cgroup *find_above(struct cgroup *cgroup, u64 id)
{
	for (int n = 0; n < MOST_LEVELS; n++) {
		struct cgroup_subsys_state *parent;

		if (cgroup->kn->id == id)
			return cgroup;
		parent = cgroup->self.parent;
		if (!parent)
			return NULL;
		cgroup = parent->cgroup;
	}
	return NULL;
}

/* Pages that a cgroup is charged for; -1 when that cannot be told. */
static __always_inline s64 charge_of(struct cgroup *cgroup)
{
	struct mem_cgroup___counted *memcg = NULL;
	void *controllers = __builtin_preserve_access_index(&((struct cgroup___controlled *)cgroup)->subsys);
	s64 pages = 0;

	/* A controller's state of a cgroup begins with what all controllers have. */
	bpf_probe_read_kernel(&memcg, sizeof(memcg),
			      controllers + 8 * bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id));
	if (!memcg || bpf_core_read(&pages, sizeof(pages), &memcg->memory.usage))
		return -1;
	return pages;
}

struct charging {
	struct ebb_reflex *reflex;
	s64 pages;
};

/* What the named cgroup is charged for, by way of one of its processes. */
static long find_charge(u32 index, void *context)
{
	struct charging *charging = context;
	struct ebb_reflex *reflex = charging->reflex;
	struct cgroup *named;
	struct task_struct *task;

	if (index >= EBB_REFLEX_TARGETS)
		return 1;
	task = bpf_task_from_pid(reflex->targets[index].pid);
	if (!task)
		return 0;
	if (is_same(task, &reflex->targets[index])) {
		named = find_above(task->cgroups->dfl_cgrp, reflex->cgroup);
		if (named)
			charging->pages = charge_of(named);
	}
	bpf_task_release(task);
	return charging->pages >= 0;
}

/* Whether what is left is to be answered for by who was named, as far as that was asked for. */
static __always_inline bool is_explained(struct ebb_reflex *reflex, s64 left)
{
	struct charging charging = { .reflex = reflex, .pages = -1 };
	s64 fall = reflex->named - left;

	if (!reflex->unexplained || fall < reflex->unexplained)
		return true;
	if (reflex->charged < 0)
		return false;
	bpf_loop(reflex->count, find_charge, &charging, 0);
	return charging.pages >= 0 && (charging.pages - reflex->charged) * 2 >= fall;
}

/* Whether the kernel lets a signal be sent from here. */
static __always_inline bool may_send(void)
{
	struct task_struct___more *current = (void *)bpf_get_current_task_btf();

	return current->mm != NULL;
}

/*
 * Fire if the line is crossed. Returns how long nothing can happen in nanoseconds, 0 when there is nothing to watch.
 */
static __always_inline u64 pull(struct ebb_reflex *reflex)
{
	u64 now = bpf_ktime_get_boot_ns(), wait;
	s64 pages;

	if (reflex->state != EBB_REFLEX_ARMED)
		return 0;
	if (now >= reflex->until_ns) {
		turn(&reflex->state, EBB_REFLEX_ARMED, reflex->killed ? EBB_REFLEX_SHOT : EBB_REFLEX_FREE);
		return 0;
	}
	if (!measure(reflex, &pages))
		return WAIT_MOST_NS;
	/* Once begun it is brought to its end, whatever the first ones have given back. */
	if (pages >= reflex->line && !reflex->killed) {
		reflex->crossed = 0;
		wait = (pages - reflex->line) * WAIT_PER_PAGE_NS;
		return wait < WAIT_LEAST_NS ? WAIT_LEAST_NS : wait > WAIT_MOST_NS ? WAIT_MOST_NS : wait;
	}
	if (!reflex->killed && !is_explained(reflex, pages)) {
		/* User space finds who it is. Until it does, this is looked at by the timer alone. */
		reflex->crossed = 0;
		return WAIT_LEAST_NS;
	}
	reflex->crossed = 1;
	if (!may_send())
		return WAIT_LEAST_NS;
	/* From here on nobody else fires, and nobody names others. */
	if (!turn(&reflex->state, EBB_REFLEX_ARMED, EBB_REFLEX_BUSY))
		return 0;
	if (!reflex->killed) {
		reflex->fired_ns = now;
		reflex->pages = pages;
	}
	reflex->refused = 0;
	bpf_loop(reflex->count, check, &reflex, 0);
	if (!reflex->doubts)
		bpf_loop(reflex->count, end, &reflex, 0);
	reflex->done_ns = bpf_ktime_get_boot_ns();
	if (reflex->refused && !reflex->doubts) {
		/* Some are left: again, and soon. */
		turn(&reflex->state, EBB_REFLEX_BUSY, EBB_REFLEX_ARMED);
		return WAIT_LEAST_NS;
	}
	turn(&reflex->state, EBB_REFLEX_BUSY, EBB_REFLEX_SHOT);
	return 0;
}

static int tick(void *map, u32 *key, struct clock *clock)
{
	struct ebb_reflex *reflex = bpf_map_lookup_elem(&REFLEX, &zero);
	u64 wait = reflex ? pull(reflex) : 0;

	if (wait)
		bpf_timer_start(&clock->timer, wait, 0);
	return 0;
}

static __always_inline int on_reclaim(void)
{
	struct ebb_reflex *reflex = bpf_map_lookup_elem(&REFLEX, &zero);

	if (reflex)
		pull(reflex);
	return 0;
}

SEC("tp_btf/mm_vmscan_kswapd_wake")
int BPF_PROG(reflex_kswapd)
{
	return on_reclaim();
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int BPF_PROG(reflex_direct_reclaim)
{
	return on_reclaim();
}

/* A user takes memory: only looked at while the line is known to be crossed. */
SEC("tp_btf/page_fault_user")
int BPF_PROG(reflex_fault)
{
	struct ebb_reflex *reflex = bpf_map_lookup_elem(&REFLEX, &zero);

	if (reflex && reflex->crossed)
		pull(reflex);
	return 0;
}

struct naming {
	struct ebb_arm *asked;
	struct ebb_reflex *reflex;
};

/* Take one that user space names, if it is what user space takes it for. */
static long name(u32 index, void *context)
{
	struct naming *naming = context;
	struct ebb_reflex *reflex = naming->reflex;
	struct ebb_arm *asked = naming->asked;
	struct ebb_target *target;
	struct task_struct *task;
	u32 place = reflex->count;

	if (index >= EBB_REFLEX_TARGETS || place >= EBB_REFLEX_TARGETS)
		return 1;
	target = &reflex->targets[place];
	task = bpf_task_from_pid(asked->processes[index].pid);
	if (!task)
		return 0;
	if (task->tgid != asked->processes[index].pid ||
	    task->start_boottime / TICK_NS != asked->processes[index].start_ticks ||
	    !find_above(task->cgroups->dfl_cgrp, asked->cgroup)) {
		/* Not the one that was meant: it is left out. */
	} else if (!may_end(task, asked->agent)) {
		/* Who holds one that is protected is protected. */
		reflex->doubts++;
	} else {
		target->pid = task->tgid;
		target->start_ns = task->start_boottime;
		target->cgroup = task->cgroups->dfl_cgrp->kn->id;
		target->fate = EBB_FATE_NONE;
		reflex->count = place + 1;
	}
	bpf_task_release(task);
	return 0;
}

/* Note what the counters come to, for user space that reads for itself now. Returns one of EBB_ANSWER_*. */
SEC("syscall")
int reflex_measure(void *context)
{
	struct ebb_arm *asked = bpf_map_lookup_elem(&ASKED, &zero);
	struct ebb_reflex *reflex = bpf_map_lookup_elem(&REFLEX, &zero);
	struct nodes *nodes = bpf_map_lookup_elem(&NUMA, &zero);
	s64 pages;

	if (!asked || !reflex || !nodes)
		return EBB_ANSWER_UNKNOWN;
	if ((!nodes->count && !find_nodes(nodes, asked->nodes)) || !count_pages(&asked->gauge, &pages))
		return EBB_ANSWER_UNKNOWN;
	reflex->before = pages;
	return EBB_ANSWER_MEASURED;
}

/* Fire now if the line is crossed by what user space has just read. Returns one of EBB_ANSWER_*. */
SEC("syscall")
int reflex_pull(void *context)
{
	struct ebb_arm *asked = bpf_map_lookup_elem(&ASKED, &zero);
	struct ebb_reflex *reflex = bpf_map_lookup_elem(&REFLEX, &zero);
	int answer;

	if (!asked || !reflex)
		return EBB_ANSWER_UNKNOWN;
	answer = calibrate(reflex, asked);
	pull(reflex);
	return answer;
}

/* Take what user space asks for; with nobody named, disarm. Returns one of EBB_ANSWER_*. */
SEC("syscall")
int reflex_arm(void *context)
{
	struct ebb_arm *asked = bpf_map_lookup_elem(&ASKED, &zero);
	struct ebb_reflex *reflex = bpf_map_lookup_elem(&REFLEX, &zero);
	struct clock *clock = bpf_map_lookup_elem(&CLOCK, &zero);
	struct naming naming = { .asked = asked, .reflex = reflex };
	bool was_armed;
	int answer;

	if (!asked || !reflex || !clock)
		return EBB_ANSWER_UNKNOWN;
	was_armed = turn(&reflex->state, EBB_REFLEX_ARMED, EBB_REFLEX_BUSY);
	if (!was_armed &&
	    !turn(&reflex->state, EBB_REFLEX_FREE, EBB_REFLEX_BUSY)) {
		if (reflex->fired_ns != asked->seen_ns ||
		    !turn(&reflex->state, EBB_REFLEX_SHOT, EBB_REFLEX_BUSY))
			return EBB_ANSWER_SHOT;
	}
	if (reflex->killed && reflex->fired_ns != asked->seen_ns) {
		/* It was not done yet. */
		turn(&reflex->state, EBB_REFLEX_BUSY, EBB_REFLEX_SHOT);
		return EBB_ANSWER_SHOT;
	}
	answer = asked->count ? calibrate(reflex, asked) : EBB_ANSWER_MEASURED;
	if (answer == EBB_ANSWER_DISTURBED) {
		turn(&reflex->state, EBB_REFLEX_BUSY, was_armed ? EBB_REFLEX_ARMED : EBB_REFLEX_FREE);
		/* It may have found the reflex busy, and would not come again. */
		if (was_armed)
			bpf_timer_start(&clock->timer, 0, 0);
		return answer;
	}
	reflex->count = 0;
	reflex->crossed = 0;
	reflex->refused = 0;
	reflex->doubts = 0;
	reflex->killed = 0;
	reflex->fired_ns = 0;
	reflex->done_ns = 0;
	reflex->cgroup = asked->cgroup;
	reflex->until_ns = asked->until_ns;
	reflex->agent = asked->agent;
	reflex->line = asked->line;
	reflex->gauge = asked->gauge;
	if (asked->count)
		bpf_loop(asked->count, name, &naming, 0);
	if (reflex->doubts || !reflex->count) {
		turn(&reflex->state, EBB_REFLEX_BUSY, EBB_REFLEX_FREE);
		return reflex->doubts ? EBB_ANSWER_PROTECTED : EBB_ANSWER_NOBODY;
	}
	if (answer == EBB_ANSWER_UNKNOWN) {
		turn(&reflex->state, EBB_REFLEX_BUSY, EBB_REFLEX_FREE);
		return answer;
	}
	reflex->pages = asked->available;
	reflex->unexplained = asked->unexplained;
	reflex->named = asked->available;
	reflex->charged = -1;
	if (asked->unexplained) {
		struct charging charging = { .reflex = reflex, .pages = -1 };

		bpf_loop(reflex->count, find_charge, &charging, 0);
		reflex->charged = charging.pages;
	}
	/* The second time there is one already, which is as good. */
	bpf_timer_init(&clock->timer, &CLOCK, CLOCK_BOOTTIME);
	bpf_timer_set_callback(&clock->timer, tick);
	turn(&reflex->state, EBB_REFLEX_BUSY, EBB_REFLEX_ARMED);
	if (bpf_timer_start(&clock->timer, 0, 0)) {
		turn(&reflex->state, EBB_REFLEX_ARMED, EBB_REFLEX_FREE);
		return EBB_ANSWER_UNKNOWN;
	}
	return EBB_ANSWER_ARMED;
}
