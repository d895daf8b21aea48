/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the kernel counts of the node's memory, added up the way user space asks for, and a clock to look at it by.
 *
 * Each object that includes this has maps of its own.
 */
#ifndef EBB_COUNTERS_H
#define EBB_COUNTERS_H

#include "kernel.h"
#include "wire.h"
#include <bpf_core_read.h>
#include <bpf_helpers.h>

#define MOST_ZONES 8

/* The kernel knows it by name. */
struct bpf_timer {
	u64 opaque[2];
} __attribute__((aligned(8)));

struct clock {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct clock);
} CLOCK SEC(".maps");

/* The NUMA nodes, found when first armed; they never go away. */
struct nodes {
	u64 count;
	u64 at[EBB_REFLEX_NODES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct nodes);
} NUMA SEC(".maps");

/* Numbers differ between kernels, names do not. */
enum cgroup_subsys_id {
	memory_cgrp_id,
};

enum zone_stat_item {
	NR_FREE_PAGES,
};

enum node_stat_item {
	NR_INACTIVE_FILE,
	NR_ACTIVE_FILE,
	NR_ANON_MAPPED,
	NR_FILE_PAGES,
	NR_SLAB_RECLAIMABLE_B,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	long counter;
} atomic_long_t;

struct zone {
	atomic_long_t vm_stat[1];
};

struct pglist_data {
	struct zone node_zones[1];
	int nr_zones;
	atomic_long_t vm_stat[1];
};

struct lruvec {
	struct pglist_data *pgdat;
};

struct mem_cgroup_per_node {
	struct lruvec lruvec;
};

struct mem_cgroup___nodes {
	struct mem_cgroup_per_node *nodeinfo[1];
};

struct css_set___controlled {
	struct cgroup_subsys_state *subsys[1];
};

#pragma clang attribute pop

static u32 zero;

static __always_inline s64 node_counter(struct pglist_data *node, u32 item)
{
	s64 value = 0;
	void *counters = __builtin_preserve_access_index(&node->vm_stat);

	bpf_probe_read_kernel(&value, sizeof(value), counters + 8 * item);
	return value;
}

#define counter(node, name) node_counter(node, bpf_core_enum_value(enum node_stat_item, name))

struct sum {
	struct ebb_gauge *gauge;
	struct nodes *nodes;
	s64 pages;
	bool unknown;
};

/* One node's share of what is measured. */
static long add_node(u32 index, void *context)
{
	struct sum *sum = context;
	struct ebb_gauge *gauge = sum->gauge;
	struct pglist_data *node;
	s64 free = 0;
	int zones = 0;

	if (index >= EBB_REFLEX_NODES)
		return 1;
	node = (void *)sum->nodes->at[index];
	if (bpf_core_read(&zones, sizeof(zones), &node->nr_zones)) {
		sum->unknown = true;
		return 1;
	}
	for (int n = 0; n < MOST_ZONES; n++) {
		s64 value = 0;
		void *zone = (void *)__builtin_preserve_access_index(&node->node_zones) +
			     n * bpf_core_type_size(struct zone);
		void *stat = __builtin_preserve_access_index(&((struct zone *)zone)->vm_stat);

		if (n >= zones)
			break;
		if (bpf_probe_read_kernel(&value, sizeof(value),
					  stat + 8 * bpf_core_enum_value(enum zone_stat_item, NR_FREE_PAGES))) {
			sum->unknown = true;
			return 1;
		}
		free += value;
	}
	sum->pages += free * gauge->free + counter(node, NR_INACTIVE_FILE) * gauge->inactive_file +
		      counter(node, NR_ACTIVE_FILE) * gauge->active_file +
		      counter(node, NR_ANON_MAPPED) * gauge->anon +
		      counter(node, NR_FILE_PAGES) * gauge->file +
		      counter(node, NR_SLAB_RECLAIMABLE_B) * gauge->slab_reclaimable;
	return 0;
}

/* What the counters come to in pages; false when that cannot be told, which is no reason to kill. */
static __always_inline bool count_pages(struct ebb_gauge *gauge, s64 *pages)
{
	struct nodes *nodes = bpf_map_lookup_elem(&NUMA, &zero);
	struct sum sum = { .gauge = gauge, .nodes = nodes };

	if (!nodes || !nodes->count)
		return false;
	bpf_loop(nodes->count, add_node, &sum, 0);
	*pages = sum.pages;
	return !sum.unknown;
}

struct finding {
	struct nodes *nodes;
	void *infos;
};

static long find_node(u32 index, void *context)
{
	struct finding *finding = context;
	struct mem_cgroup_per_node *info = NULL;
	struct pglist_data *node = NULL;
	u64 place = finding->nodes->count;

	bpf_probe_read_kernel(&info, sizeof(info), finding->infos + 8 * index);
	if (!info || bpf_core_read(&node, sizeof(node), &info->lruvec.pgdat) || place >= EBB_REFLEX_NODES)
		return 1;
	/* A number without a node behind it has none. */
	if (node) {
		finding->nodes->at[place] = (u64)node;
		finding->nodes->count = place + 1;
	}
	return 0;
}

/* Find the nodes by way of the memory controller, which keeps a list of pages for each. */
static __always_inline bool find_nodes(struct nodes *nodes, u32 possible)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct css_set___controlled *set = (void *)task->cgroups;
	struct mem_cgroup___nodes *memcg = NULL;
	struct finding finding = { .nodes = nodes };
	void *controllers = __builtin_preserve_access_index(&set->subsys);

	bpf_probe_read_kernel(&memcg, sizeof(memcg),
			      controllers + 8 * bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id));
	if (!memcg)
		return false;
	finding.infos = __builtin_preserve_access_index(&memcg->nodeinfo);
	if (bpf_loop(possible, find_node, &finding, 0) == possible && nodes->count)
		return true;
	/* Some of them are not all of the memory. */
	nodes->count = 0;
	return false;
}

#endif
