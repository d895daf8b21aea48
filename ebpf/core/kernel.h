/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the programs here know of the kernel: exactly the fields they use.
 *
 * Offsets are filled in when an object is loaded, from the running kernel's own type information, so order and size here mean
 * nothing. Fields are read by plain dereference wherever the verifier tracks the pointer: that needs no helper that
 * reads arbitrary kernel memory, which lockdown for confidentiality takes away.
 */
#ifndef EBB_KERNEL_H
#define EBB_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s16 s16;
typedef __s32 s32;
typedef __s64 s64;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

/* Numbers of the kernel's user-space interface. */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };
enum { BPF_RB_AVAIL_DATA = 0, BPF_RB_RING_SIZE = 1 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	u64 id;
	const char *name;
};

struct cgroup;

struct cgroup_root {
	int hierarchy_id;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	int level;
	struct kernfs_node *kn;
	struct cgroup_root *root;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct mem_cgroup {
	struct cgroup_subsys_state css;
};

struct cgroup_file {
	struct kernfs_node *kn;
};

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
	int nr_threads;
	int group_exit_code;
	s16 oom_score_adj;
};

struct task_struct {
	s32 pid;
	s32 tgid;
	int exit_code;
	u64 start_boottime;
	char comm[16];
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct signal_struct *signal;
	struct css_set *cgroups;
};

struct oom_control {
	struct mem_cgroup *memcg;
};

/* Where a kernfs node keeps its parent: `__parent` since 6.15, `parent` before. */
struct kernfs_node___new {
	struct kernfs_node *__parent;
};
struct kernfs_node___old {
	struct kernfs_node *parent;
};

/* Numbers differ between kernels, names do not. */
enum memcg_memory_event {
	MEMCG_LOW,
	MEMCG_HIGH,
	MEMCG_MAX,
	MEMCG_OOM,
	MEMCG_OOM_KILL,
	MEMCG_OOM_GROUP_KILL,
	MEMCG_SWAP_HIGH,
	MEMCG_SWAP_MAX,
	MEMCG_SWAP_FAIL,
	MEMCG_SOCK_THROTTLED,
};

#pragma clang attribute pop

#endif
