// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * What every cgroup of a subtree uses, written down in one pass over the tree.
 *
 *   read(iterator) ─► one run per cgroup, parents first ─► SWEPT[0], SWEPT[1], …      SWEEP: how many there were
 *                     └ and one without a cgroup at the end ─────────────────────────► SWEEP: this sweep is whole
 *
 * The kernel walks the tree under the lock that every change of it takes, so a sweep shows the tree as it was at one moment.
 * Records go to a map because the iterator's own output holds 32 KiB and cannot be resumed.
 *
 * Three programs, of which the loader takes the first that the kernel accepts:
 *   sweep_kfuncs    asks the memory controller, by functions that it offers to programs
 *   sweep_rstat     reads its counters and its statistics, where the place of each statistic follows from its name
 *   sweep_counters  reads its counters
 */
#include "kernel.h"
#include "wire.h"
#include <bpf_core_read.h>
#include <bpf_helpers.h>
#include <bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

enum { BPF_F_MMAPABLE = 1024 };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ebb_sweep);
} SWEEP SEC(".maps");

/* Sized by the loader. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct ebb_swept);
} SWEPT SEC(".maps");

/* Numbers differ between kernels, names do not. */
enum cgroup_subsys_id {
	memory_cgrp_id,
	pids_cgrp_id,
};

enum memcg_stat_item {
	MEMCG_KMEM,
	MEMCG_NR_STAT,
};

enum node_stat_item {
	NR_INACTIVE_FILE,
	NR_ACTIVE_FILE,
	NR_ANON_MAPPED,
	NR_FILE_PAGES,
	NR_SHMEM,
	WORKINGSET_REFAULT_FILE,
};

/* Where scans are counted: with the node's statistics since 7.1, with its events before. */
enum node_stat_item___scans {
	PGSCAN_KSWAPD___stat,
	PGSCAN_DIRECT___stat,
	PGSCAN_KHUGEPAGED___stat,
	PGSCAN_PROACTIVE___stat,
};

enum vm_event_item {
	PGSCAN_KSWAPD,
	PGSCAN_DIRECT,
	PGSCAN_KHUGEPAGED,
	PGSCAN_PROACTIVE,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	long counter;
} atomic_long_t;

typedef struct {
	s64 counter;
} atomic64_t;

struct page_counter {
	atomic_long_t usage;
	unsigned long min;
	unsigned long low;
	unsigned long high;
	unsigned long max;
};

struct memcg_vmstats {
	long state[1];
};

struct mem_cgroup___counted {
	struct page_counter memory;
	struct page_counter swap;
	atomic_long_t memory_events[1];
	struct memcg_vmstats *vmstats;
};

struct pids_cgroup {
	atomic64_t counter;
};

struct cgroup___controlled {
	struct cgroup_subsys_state *subsys[1];
};

struct bpf_iter_meta {
	u64 seq_num;
};

struct bpf_iter__cgroup {
	struct bpf_iter_meta *meta;
	struct cgroup *cgroup;
};

#pragma clang attribute pop

extern struct mem_cgroup *bpf_get_mem_cgroup(struct cgroup_subsys_state *css) __weak __ksym;
extern void bpf_put_mem_cgroup(struct mem_cgroup *memcg) __weak __ksym;
extern void bpf_mem_cgroup_flush_stats(struct mem_cgroup *memcg) __weak __ksym;
extern unsigned long bpf_mem_cgroup_page_state(struct mem_cgroup *memcg, int item) __weak __ksym;
extern unsigned long bpf_mem_cgroup_vm_events(struct mem_cgroup *memcg, enum vm_event_item event) __weak __ksym;
extern unsigned long bpf_mem_cgroup_memory_events(struct mem_cgroup *memcg,
						  enum memcg_memory_event event) __weak __ksym;
extern void cgroup_rstat_flush(struct cgroup *cgroup) __weak __ksym;

/* The place for this cgroup's record; NULL at the end of the sweep, and where there are more cgroups than room. */
static __always_inline struct ebb_swept *begin(struct bpf_iter__cgroup *ctx)
{
	struct cgroup *cgroup = ctx->cgroup;
	u32 zero = 0, index;
	struct ebb_sweep *sweep = bpf_map_lookup_elem(&SWEEP, &zero);
	struct cgroup_subsys_state *parent;
	struct ebb_swept *swept;

	if (!sweep)
		return NULL;
	if (ctx->meta->seq_num == 0)
		sweep->found = 0;
	sweep->whole = !cgroup;
	if (!cgroup)
		return NULL;
	index = sweep->found++;
	swept = bpf_map_lookup_elem(&SWEPT, &index);
	if (!swept)
		return NULL;
	parent = cgroup->self.parent;
	swept->cgroup = cgroup->kn->id;
	swept->parent = parent ? parent->cgroup->kn->id : 0;
	swept->level = cgroup->level;
	swept->told = 0;
	return swept;
}

/* Whether the value of a controller's file is there to be read: at the root none of those that we read is. */
static __always_inline bool is_root(struct cgroup *cgroup)
{
	return cgroup->level == 0;
}

#define controller(cgroup, name)                                           \
	((struct cgroup___controlled *)(cgroup))                           \
		->subsys[bpf_core_enum_value(enum cgroup_subsys_id, name)]

static __always_inline void tell_pids(struct cgroup *cgroup, struct ebb_swept *swept)
{
	struct cgroup_subsys_state *css;
	struct pids_cgroup *pids;

	if (is_root(cgroup) || !bpf_core_enum_value_exists(enum cgroup_subsys_id, pids_cgrp_id))
		return;
	css = controller(cgroup, pids_cgrp_id);
	if (!css)
		return;
	/* A controller's state of a cgroup begins with what all controllers have. */
	pids = (void *)css;
	if (bpf_core_read(&swept->pids, sizeof(swept->pids), &pids->counter.counter) == 0)
		swept->told |= EBB_TOLD_PIDS;
}

#define count(memcg, name)                                                                     \
	({                                                                                     \
		u64 value = 0;                                                                 \
		void *events = __builtin_preserve_access_index(&(memcg)->memory_events);       \
		bpf_probe_read_kernel(&value, sizeof(value),                                   \
				      events + 8 * bpf_core_enum_value(enum memcg_memory_event, \
								       MEMCG_##name));         \
		value;                                                                         \
	})

/* The page counters and memory.events, read where they are. */
static __always_inline void tell_counters(struct cgroup *cgroup, struct mem_cgroup___counted *memcg,
					  struct ebb_swept *swept)
{
	if (is_root(cgroup))
		return;
	if (bpf_core_read(&swept->usage, sizeof(u64), &memcg->memory.usage.counter))
		return;
	swept->min = BPF_CORE_READ(memcg, memory.min);
	swept->low = BPF_CORE_READ(memcg, memory.low);
	swept->high = BPF_CORE_READ(memcg, memory.high);
	swept->max = BPF_CORE_READ(memcg, memory.max);
	swept->swap = BPF_CORE_READ(memcg, swap.usage.counter);
	swept->low_events = count(memcg, LOW);
	swept->high_events = count(memcg, HIGH);
	swept->max_events = count(memcg, MAX);
	swept->oom_events = count(memcg, OOM);
	swept->oom_kills = count(memcg, OOM_KILL);
	swept->told |= EBB_TOLD_MEMORY | EBB_TOLD_EVENTS;
}

#define page_state(memcg, set, name) bpf_mem_cgroup_page_state(memcg, bpf_core_enum_value(enum set, name))

#define scans(memcg, name)                                                                          \
	(bpf_core_enum_value_exists(enum node_stat_item___scans, PGSCAN_##name##___stat) ?          \
		 page_state(memcg, node_stat_item___scans, PGSCAN_##name##___stat) :                \
	 bpf_core_enum_value_exists(enum vm_event_item, PGSCAN_##name) ?                            \
		 bpf_mem_cgroup_vm_events(memcg,                                                    \
					  bpf_core_enum_value(enum vm_event_item, PGSCAN_##name)) : \
		 0)

#define events(memcg, name) \
	bpf_mem_cgroup_memory_events(memcg, bpf_core_enum_value(enum memcg_memory_event, MEMCG_##name))

SEC("iter.s/cgroup")
int sweep_kfuncs(struct bpf_iter__cgroup *ctx)
{
	struct ebb_swept *swept = begin(ctx);
	struct cgroup *cgroup = ctx->cgroup;
	struct mem_cgroup___counted *counted;
	struct mem_cgroup *memcg;

	if (!swept || !cgroup)
		return 0;
	tell_pids(cgroup, swept);
	memcg = bpf_get_mem_cgroup(&cgroup->self);
	if (!memcg)
		return 0;
	/* Once, for what is swept first is above all the others. */
	if (ctx->meta->seq_num == 0)
		bpf_mem_cgroup_flush_stats(memcg);
	if (!is_root(cgroup)) {
		counted = (void *)memcg;
		swept->usage = counted->memory.usage.counter;
		swept->min = counted->memory.min;
		swept->low = counted->memory.low;
		swept->high = counted->memory.high;
		swept->max = counted->memory.max;
		swept->swap = counted->swap.usage.counter;
		swept->low_events = events(memcg, LOW);
		swept->high_events = events(memcg, HIGH);
		swept->max_events = events(memcg, MAX);
		swept->oom_events = events(memcg, OOM);
		swept->oom_kills = events(memcg, OOM_KILL);
		swept->told |= EBB_TOLD_MEMORY | EBB_TOLD_EVENTS;
	}
	swept->anon = page_state(memcg, node_stat_item, NR_ANON_MAPPED);
	swept->file = page_state(memcg, node_stat_item, NR_FILE_PAGES);
	swept->active_file = page_state(memcg, node_stat_item, NR_ACTIVE_FILE);
	swept->inactive_file = page_state(memcg, node_stat_item, NR_INACTIVE_FILE);
	swept->shmem = page_state(memcg, node_stat_item, NR_SHMEM);
	swept->refaults = page_state(memcg, node_stat_item, WORKINGSET_REFAULT_FILE);
	swept->kernel = page_state(memcg, memcg_stat_item, MEMCG_KMEM);
	swept->scans = scans(memcg, KSWAPD) + scans(memcg, DIRECT) + scans(memcg, KHUGEPAGED) +
		       scans(memcg, PROACTIVE);
	swept->told |= EBB_TOLD_STAT | EBB_TOLD_SCANS;
	bpf_put_mem_cgroup(memcg);
	return 0;
}

SEC("iter/cgroup")
int sweep_counters(struct bpf_iter__cgroup *ctx)
{
	struct ebb_swept *swept = begin(ctx);
	struct cgroup *cgroup = ctx->cgroup;
	struct cgroup_subsys_state *css;

	if (!swept || !cgroup)
		return 0;
	tell_pids(cgroup, swept);
	css = controller(cgroup, memory_cgrp_id);
	if (css)
		tell_counters(cgroup, (void *)css, swept);
	return 0;
}

#define state(stats, set, name)                                                                     \
	({                                                                                          \
		s64 value = 0;                                                                      \
		void *states = __builtin_preserve_access_index(&(stats)->state);                    \
		bpf_probe_read_kernel(&value, sizeof(value),                                        \
				      states + 8 * bpf_core_enum_value(enum set, name));            \
		value < 0 ? 0 : value;                                                              \
	})

/* Kernels that keep only the statistics that they show, and so not each at its own number, have fewer places than numbers. */
static __always_inline bool places_are_numbers(void)
{
	struct memcg_vmstats *stats = NULL;

	return bpf_core_field_size(stats->state) ==
	       8 * bpf_core_enum_value(enum memcg_stat_item, MEMCG_NR_STAT);
}

SEC("iter.s/cgroup")
int sweep_rstat(struct bpf_iter__cgroup *ctx)
{
	struct ebb_swept *swept = begin(ctx);
	struct cgroup *cgroup = ctx->cgroup;
	struct mem_cgroup___counted *memcg;
	struct cgroup_subsys_state *css;
	struct memcg_vmstats *stats;

	if (!swept || !cgroup)
		return 0;
	tell_pids(cgroup, swept);
	css = controller(cgroup, memory_cgrp_id);
	if (!css)
		return 0;
	memcg = (void *)css;
	tell_counters(cgroup, memcg, swept);
	if (!places_are_numbers())
		return 0;
	if (ctx->meta->seq_num == 0)
		cgroup_rstat_flush(cgroup);
	if (bpf_core_read(&stats, sizeof(stats), &memcg->vmstats) || !stats)
		return 0;
	swept->anon = state(stats, node_stat_item, NR_ANON_MAPPED);
	swept->file = state(stats, node_stat_item, NR_FILE_PAGES);
	swept->active_file = state(stats, node_stat_item, NR_ACTIVE_FILE);
	swept->inactive_file = state(stats, node_stat_item, NR_INACTIVE_FILE);
	swept->shmem = state(stats, node_stat_item, NR_SHMEM);
	swept->refaults = state(stats, node_stat_item, WORKINGSET_REFAULT_FILE);
	swept->kernel = state(stats, memcg_stat_item, MEMCG_KMEM);
	swept->told |= EBB_TOLD_STAT;
	return 0;
}
