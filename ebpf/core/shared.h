/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The maps that this half shares with `ebpf/probes`, and what is done with them: send, count, count as lost.
 *
 * Sizes given here are for a loader that gives none. Each of the small objects declares all of these maps; the loader makes
 * each map once, whichever object comes first.
 */
#ifndef EBB_SHARED_H
#define EBB_SHARED_H

#include "kernel.h"
#include "wire.h"
#include <bpf_core_read.h>
#include <bpf_helpers.h>
#include <bpf_tracing.h>

/* OOM kills and exits: what must not be crowded out by anything else. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 512 * 1024);
} VITAL SEC(".maps");

/* Everything else that somebody must react to. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 512 * 1024);
} EVENTS SEC(".maps");

/* Records that found no room, by kind. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EBB_KIND_COUNT);
	__type(key, u32);
	__type(value, u64);
} LOST SEC(".maps");

/* Running totals by cgroup id. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, u64);
	__type(value, struct ebb_counters);
} CGROUPS SEC(".maps");

/* When a record that is in no hurry was last sent, by EBB_UNHURRIED_*. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, EBB_UNHURRIED_COUNT);
	__type(key, u32);
	__type(value, u64);
} UNHURRIED SEC(".maps");

/* Relaxed and with its result unused, because kernels before 5.12 know no addition that returns. */
static __always_inline void add(u64 *counter, u64 amount)
{
	__atomic_fetch_add(counter, amount, __ATOMIC_RELAXED);
}

/* Count a record that could not be sent. */
static __always_inline void lose(u32 kind)
{
	u64 *lost = bpf_map_lookup_elem(&LOST, &kind);

	/* Per CPU, and atomic all the same: a program can be preempted, and another run on the same CPU. */
	if (lost)
		add(lost, 1);
}

/* Fill in the header of a record. */
static __always_inline void head(struct ebb_header *header, u16 kind, u16 len)
{
	header->kind = kind;
	header->len = len;
	header->cpu = bpf_get_smp_processor_id();
	header->ts_ns = bpf_ktime_get_boot_ns();
}

/* Room for a record of type T in a ring, its header filled in; NULL, and counted as lost, when there is none. */
#define begin_record(ring, T, kind)                                     \
	({                                                              \
		T *room = bpf_ringbuf_reserve(ring, sizeof(T), 0);      \
		if (room)                                               \
			head((struct ebb_header *)room, kind, sizeof(T)); \
		else                                                    \
			lose(kind);                                     \
		room;                                                   \
	})

/* How full a ring is, in bytes. */
struct filling {
	u64 used;
	u64 size;
};

static __always_inline struct filling filling(void *ring)
{
	struct filling now = {
		.used = bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA),
		.size = bpf_ringbuf_query(ring, BPF_RB_RING_SIZE),
	};

	return now;
}

/*
 * How to submit a record of a kind that can come in floods. Waking the reader costs more than everything else that a
 * program does, so only the first after a quiet time wakes it; it then looks in by itself for longer than that time. A
 * ring that fills up wakes it all the same. `now` is the record's own time: a look at the clock is a good part of what a
 * program costs. So is a line of memory that another CPU has written, hence the time of the last is brought up to date
 * only now and then: a quiet time then seems longer than it was, and the reader is woken once too often.
 */
static __always_inline u64 unhurried(struct filling ring, u32 which, u64 now)
{
	u64 *last = bpf_map_lookup_elem(&UNHURRIED, &which);
	u64 since = last ? now - *last : EBB_QUIET_NS + 1;
	bool quiet = since > EBB_QUIET_NS;

	if (last && since > EBB_QUIET_NS / 4)
		*last = now;
	if (ring.used > ring.size / 2)
		return BPF_RB_FORCE_WAKEUP;
	return quiet ? 0 : BPF_RB_NO_WAKEUP;
}

/* Whether the vital ring has room for more than OOM kills, for which its last eighth is kept. */
static __always_inline bool vital_has_room(struct filling vital)
{
	return vital.used < vital.size - vital.size / 8;
}

/* A cgroup's totals, to be added to with `add`; NULL when the map will not take the cgroup. */
static __always_inline struct ebb_counters *totals(u64 cgroup)
{
	struct ebb_counters *counters = bpf_map_lookup_elem(&CGROUPS, &cgroup);

	if (!counters) {
		struct ebb_counters zero = {};

		/* Whoever else is first at the same time has put the same zeros there. */
		bpf_map_update_elem(&CGROUPS, &cgroup, &zero, BPF_NOEXIST);
		counters = bpf_map_lookup_elem(&CGROUPS, &cgroup);
	}
	return counters;
}

/* A name, without a helper: the verifier lets an array be read in parts of any size. `to` is aligned to 8 bytes. */
static __always_inline void copy_comm(u8 *to, struct task_struct *task)
{
#pragma unroll
	for (int i = 0; i < EBB_COMM_LEN; i += sizeof(u64))
		*(u64 *)(to + i) = *(u64 *)&task->comm[i];
}

/* Whether a cgroup belongs to the v2 hierarchy; ids of different hierarchies have nothing to do with each other. */
static __always_inline bool is_v2(struct cgroup *cgroup)
{
	return cgroup->root->hierarchy_id == 0;
}

#endif
