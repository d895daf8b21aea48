// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Waking user space when available memory has fallen by so much, so that it need not get up to look while it does not fall.
 *
 *   fall_watch: what is left now, less what it may fall by ─► LINE ─ tick, as often as the room above it asks ─► below: told, once
 *
 * What is compared are the kernel's own counters with themselves: how much is available is for user space to say.
 */
#include "counters.h"
#include "kernel.h"
#include "wire.h"
#include <bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

enum { CLOCK_BOOTTIME = 7 };

/* Between two looks: a millisecond at least, in which 16 GiB/s take as many MiB, and what costs next to nothing at most. */
#define WAIT_LEAST_NS 1000000ULL
#define WAIT_MOST_NS 100000000ULL

/* What user space asks for; read by fall_watch. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ebb_fall_asked);
} ASKED SEC(".maps");

/* What is watched. */
struct fall {
	struct ebb_gauge gauge;
	s64 line;
	u64 page_ns;
	u64 until_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct fall);
} FALL SEC(".maps");

/* When it was found to have fallen, CLOCK_BOOTTIME in nanoseconds. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} FALLS SEC(".maps");

/* Tell of a fall. Returns how long there can be none in nanoseconds, 0 when nothing is watched any more. */
static __always_inline u64 look(struct fall *fall)
{
	u64 now = bpf_ktime_get_boot_ns(), wait;
	s64 pages;

	if (now >= fall->until_ns)
		return 0;
	if (count_pages(&fall->gauge, &pages) && pages >= fall->line) {
		wait = (pages - fall->line) * fall->page_ns;
		return wait < WAIT_LEAST_NS ? WAIT_LEAST_NS : wait > WAIT_MOST_NS ? WAIT_MOST_NS : wait;
	}
	/* Nor can user space rely on what cannot be told. */
	fall->until_ns = 0;
	bpf_ringbuf_output(&FALLS, &now, sizeof(now), BPF_RB_FORCE_WAKEUP);
	return 0;
}

static int tick(void *map, u32 *key, struct clock *clock)
{
	struct fall *fall = bpf_map_lookup_elem(&FALL, &zero);
	u64 wait = fall ? look(fall) : 0;

	if (wait)
		bpf_timer_start(&clock->timer, wait, 0);
	return 0;
}

/* Watch from what is left now on. Returns one of EBB_ANSWER_*. */
SEC("syscall")
int fall_watch(void *context)
{
	struct ebb_fall_asked *asked = bpf_map_lookup_elem(&ASKED, &zero);
	struct fall *fall = bpf_map_lookup_elem(&FALL, &zero);
	struct clock *clock = bpf_map_lookup_elem(&CLOCK, &zero);
	struct nodes *nodes = bpf_map_lookup_elem(&NUMA, &zero);
	s64 pages;

	if (!asked || !fall || !clock || !nodes)
		return EBB_ANSWER_UNKNOWN;
	if ((!nodes->count && !find_nodes(nodes, asked->nodes)) || !count_pages(&asked->gauge, &pages))
		return EBB_ANSWER_UNKNOWN;
	fall->gauge = asked->gauge;
	fall->line = pages - asked->pages;
	fall->page_ns = asked->page_ns;
	fall->until_ns = asked->until_ns;
	/* The second time there is one already, which is as good. */
	bpf_timer_init(&clock->timer, &CLOCK, CLOCK_BOOTTIME);
	bpf_timer_set_callback(&clock->timer, tick);
	return bpf_timer_start(&clock->timer, 0, 0) ? EBB_ANSWER_UNKNOWN : EBB_ANSWER_ARMED;
}
