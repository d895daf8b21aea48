/* SPDX-License-Identifier: MIT OR GPL-2.0-only OR Apache-2.0 */
/*
 * The C twin of the crate `ebb-wire`: same records, same numbers, documented there.
 * A test of that crate compiles this file and compares every size and offset.
 * Includes nothing, so that both the kernel programs and that test can include it.
 */
#ifndef EBB_WIRE_H
#define EBB_WIRE_H

typedef unsigned char ebb_u8;
typedef unsigned short ebb_u16;
typedef unsigned int ebb_u32;
typedef int ebb_i32;
typedef long long ebb_i64;
typedef unsigned long long ebb_u64;

#define EBB_COMM_LEN 16
#define EBB_PATH_LEN 512

struct ebb_header {
	ebb_u16 kind;
	ebb_u16 len;
	ebb_u32 cpu;
	ebb_u64 ts_ns;
};

struct ebb_exit {
	struct ebb_header header;
	ebb_u64 cgroup;
	ebb_u64 start_ns;
	ebb_u32 pid;
	ebb_u32 ppid;
	ebb_u32 status;
	ebb_u32 flags;
	ebb_u8 comm[EBB_COMM_LEN];
};

struct ebb_oom_kill {
	struct ebb_header header;
	ebb_u64 victim_cgroup;
	ebb_u64 limit_cgroup;
	ebb_u64 start_ns;
	ebb_u32 pid;
	ebb_i32 oom_score_adj;
	ebb_u32 limit;
	ebb_u32 reserved;
	ebb_u8 comm[EBB_COMM_LEN];
};

struct ebb_memory_event {
	struct ebb_header header;
	ebb_u64 cgroup;
	ebb_u32 which;
	ebb_u32 folded;
};

struct ebb_cgroup {
	struct ebb_header header;
	ebb_u64 cgroup;
	ebb_u64 parent;
	ebb_u32 level;
	ebb_u32 change;
};

struct ebb_cgroup_named {
	struct ebb_cgroup what;
	ebb_u8 path[EBB_PATH_LEN];
};

struct ebb_kswapd_wake {
	struct ebb_header header;
	ebb_u32 node;
	ebb_u32 folded;
};

struct ebb_counters {
	ebb_u64 forks;
	ebb_u64 execs;
	ebb_u64 stall_ns;
	ebb_u64 direct_reclaims;
	ebb_u64 direct_reclaim_ns;
	ebb_u64 refaults;
	ebb_u64 memcg_reclaims;
	ebb_u64 memcg_reclaim_ns;
	ebb_u64 reclaimed_pages;
	ebb_u64 memory_events;
};

struct ebb_sweep {
	ebb_u32 found;
	ebb_u32 whole;
};

struct ebb_swept {
	ebb_u64 cgroup;
	ebb_u64 parent;
	ebb_u32 level;
	ebb_u32 told;
	ebb_u64 usage;
	ebb_u64 min;
	ebb_u64 low;
	ebb_u64 high;
	ebb_u64 max;
	ebb_u64 swap;
	ebb_u64 low_events;
	ebb_u64 high_events;
	ebb_u64 max_events;
	ebb_u64 oom_events;
	ebb_u64 oom_kills;
	ebb_u64 pids;
	ebb_u64 anon;
	ebb_u64 file;
	ebb_u64 active_file;
	ebb_u64 inactive_file;
	ebb_u64 shmem;
	ebb_u64 kernel;
	ebb_u64 refaults;
	ebb_u64 scans;
};

#define EBB_REFLEX_TARGETS 64
#define EBB_REFLEX_NODES 64

struct ebb_process {
	ebb_u64 start_ticks;
	ebb_i32 pid;
	ebb_u32 reserved;
};

struct ebb_gauge {
	ebb_i32 free;
	ebb_i32 inactive_file;
	ebb_i32 active_file;
	ebb_i32 anon;
	ebb_i32 file;
	ebb_i32 slab_reclaimable;
};

struct ebb_fall_asked {
	ebb_u64 until_ns;
	ebb_u64 page_ns;
	ebb_i64 pages;
	struct ebb_gauge gauge;
	ebb_u32 nodes;
	ebb_u32 reserved;
};

struct ebb_arm {
	ebb_u64 cgroup;
	ebb_u64 until_ns;
	ebb_u64 seen_ns;
	ebb_i64 available;
	ebb_i64 line;
	ebb_i64 slack;
	ebb_i64 unexplained;
	struct ebb_gauge gauge;
	ebb_i32 agent;
	ebb_u32 nodes;
	ebb_u32 count;
	ebb_u32 reserved;
	struct ebb_process processes[EBB_REFLEX_TARGETS];
};

struct ebb_target {
	ebb_u64 start_ns;
	ebb_u64 cgroup;
	ebb_i32 pid;
	ebb_u32 fate;
};

struct ebb_reflex {
	ebb_u32 state;
	ebb_u32 count;
	ebb_u32 doubts;
	ebb_u32 killed;
	ebb_u32 refused;
	ebb_u32 reserved;
	ebb_u64 cgroup;
	ebb_u64 until_ns;
	ebb_u64 fired_ns;
	ebb_u64 done_ns;
	ebb_i64 base;
	ebb_i64 line;
	ebb_i64 pages;
	ebb_i64 before;
	ebb_i64 unexplained;
	ebb_i64 named;
	ebb_i64 charged;
	struct ebb_gauge gauge;
	ebb_i32 agent;
	ebb_u32 crossed;
	struct ebb_target targets[EBB_REFLEX_TARGETS];
};

enum {
	EBB_REFLEX_FREE = 0,
	EBB_REFLEX_ARMED = 1,
	EBB_REFLEX_BUSY = 2,
	EBB_REFLEX_SHOT = 3,
};

enum {
	EBB_FATE_NONE = 0,
	EBB_FATE_KILLED = 1,
	EBB_FATE_GONE = 2,
	EBB_FATE_DOUBT = 3,
	EBB_FATE_REFUSED = 4,
};

enum {
	EBB_ANSWER_ARMED = 0,
	EBB_ANSWER_NOBODY = 1,
	EBB_ANSWER_PROTECTED = 2,
	EBB_ANSWER_SHOT = 3,
	EBB_ANSWER_UNKNOWN = 4,
	EBB_ANSWER_MEASURED = 5,
	EBB_ANSWER_DISTURBED = 6,
};

enum {
	EBB_TOLD_MEMORY = 1,
	EBB_TOLD_EVENTS = 2,
	EBB_TOLD_PIDS = 4,
	EBB_TOLD_STAT = 8,
	EBB_TOLD_SCANS = 16,
};

enum {
	EBB_KIND_EXIT = 1,
	EBB_KIND_OOM_KILL = 2,
	EBB_KIND_MEMORY_EVENT = 3,
	EBB_KIND_CGROUP = 4,
	EBB_KIND_CGROUP_NAMED = 5,
	EBB_KIND_KSWAPD_WAKE = 6,
	EBB_KIND_COUNT = 7,
};

enum {
	EBB_EXIT_STATUS = 1,
	EBB_EXIT_LEADER_ONLY = 2,
};

enum {
	EBB_OOM_LIMIT_UNKNOWN = 0,
	EBB_OOM_LIMIT_NODE = 1,
	EBB_OOM_LIMIT_CGROUP = 2,
	EBB_OOM_LIMIT_CGROUP_V1 = 3,
};

enum {
	EBB_WHICH_UNKNOWN = 0,
	EBB_WHICH_LOW = 1,
	EBB_WHICH_HIGH = 2,
	EBB_WHICH_MAX = 3,
	EBB_WHICH_OOM = 4,
	EBB_WHICH_OOM_KILL = 5,
	EBB_WHICH_OOM_GROUP_KILL = 6,
	EBB_WHICH_SWAP_HIGH = 7,
	EBB_WHICH_SWAP_MAX = 8,
	EBB_WHICH_SWAP_FAIL = 9,
	EBB_WHICH_SOCK_THROTTLED = 10,
};

enum {
	EBB_CHANGE_CREATED = 1,
	EBB_CHANGE_REMOVED = 2,
	EBB_CHANGE_RENAMED = 3,
	EBB_CHANGE_RELEASED = 4,
	EBB_CHANGE_POPULATED = 5,
	EBB_CHANGE_EMPTIED = 6,
};

/* Which ring a record that is in no hurry goes through. */
enum {
	EBB_UNHURRIED_VITAL = 0,
	EBB_UNHURRIED_EVENTS = 1,
	EBB_UNHURRIED_COUNT = 2,
};

#define EBB_QUIET_NS 20000000ULL

_Static_assert(sizeof(struct ebb_header) == 16, "size is part of the layout");
_Static_assert(sizeof(struct ebb_exit) == 64, "size is part of the layout");
_Static_assert(sizeof(struct ebb_oom_kill) == 72, "size is part of the layout");
_Static_assert(sizeof(struct ebb_memory_event) == 32, "size is part of the layout");
_Static_assert(sizeof(struct ebb_cgroup) == 40, "size is part of the layout");
_Static_assert(sizeof(struct ebb_cgroup_named) == 552, "size is part of the layout");
_Static_assert(sizeof(struct ebb_kswapd_wake) == 24, "size is part of the layout");
_Static_assert(sizeof(struct ebb_counters) == 80, "size is part of the layout");
_Static_assert(sizeof(struct ebb_fall_asked) == 56, "size is part of the layout");
_Static_assert(sizeof(struct ebb_arm) == 1120, "size is part of the layout");
_Static_assert(sizeof(struct ebb_reflex) == 1680, "size is part of the layout");
_Static_assert(sizeof(struct ebb_sweep) == 8, "size is part of the layout");
_Static_assert(sizeof(struct ebb_swept) == 184, "size is part of the layout");

#endif
