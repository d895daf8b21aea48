// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Cgroups of the v2 hierarchy: made, removed, renamed, let go of, filled and emptied. By id, which is the inode number of the
 * directory and never used again before a reboot.
 *
 * Where a path is new it is sent along, by programs that a kernel under lockdown refuses; their twins do without.
 */
#include "shared.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

static __always_inline void describe(struct ebb_cgroup *what, struct cgroup *cgroup, u32 change)
{
	struct cgroup_subsys_state *parent = cgroup->self.parent;

	what->cgroup = cgroup->kn->id;
	what->parent = parent ? parent->cgroup->kn->id : 0;
	what->level = cgroup->level;
	what->change = change;
}

static __always_inline int changed(struct cgroup *cgroup, u32 change)
{
	struct ebb_cgroup *what;

	if (!is_v2(cgroup))
		return 0;
	what = begin_record(&EVENTS, struct ebb_cgroup, EBB_KIND_CGROUP);
	if (!what)
		return 0;
	describe(what, cgroup, change);
	bpf_ringbuf_submit(what, 0);
	return 0;
}

static __always_inline int changed_at(struct cgroup *cgroup, const char *path, u32 change)
{
	struct ebb_cgroup_named *named;
	long len;

	if (!is_v2(cgroup))
		return 0;
	named = begin_record(&EVENTS, struct ebb_cgroup_named, EBB_KIND_CGROUP_NAMED);
	if (!named)
		return 0;
	describe(&named->what, cgroup, change);
	len = bpf_probe_read_kernel_str(named->path, sizeof(named->path), path);
	if (len < 0)
		named->path[0] = 0;
	if (len == sizeof(named->path))
		/* Cut off: without its end the path does not look like one. */
		named->path[sizeof(named->path) - 1] = '/';
	bpf_ringbuf_submit(named, 0);
	return 0;
}

SEC("tp_btf/cgroup_mkdir")
int BPF_PROG(cgroup_created_at, struct cgroup *cgroup, const char *path)
{
	return changed_at(cgroup, path, EBB_CHANGE_CREATED);
}

SEC("tp_btf/cgroup_mkdir")
int BPF_PROG(cgroup_created, struct cgroup *cgroup)
{
	return changed(cgroup, EBB_CHANGE_CREATED);
}

SEC("tp_btf/cgroup_rmdir")
int BPF_PROG(cgroup_removed, struct cgroup *cgroup)
{
	return changed(cgroup, EBB_CHANGE_REMOVED);
}

SEC("tp_btf/cgroup_rename")
int BPF_PROG(cgroup_renamed_to, struct cgroup *cgroup, const char *path)
{
	return changed_at(cgroup, path, EBB_CHANGE_RENAMED);
}

SEC("tp_btf/cgroup_rename")
int BPF_PROG(cgroup_renamed, struct cgroup *cgroup)
{
	return changed(cgroup, EBB_CHANGE_RENAMED);
}

/* Nothing can be charged to it any more: its totals are forgotten. */
SEC("tp_btf/cgroup_release")
int BPF_PROG(cgroup_released, struct cgroup *cgroup)
{
	u64 id = cgroup->kn->id;

	if (is_v2(cgroup))
		bpf_map_delete_elem(&CGROUPS, &id);
	return changed(cgroup, EBB_CHANGE_RELEASED);
}

SEC("tp_btf/cgroup_notify_populated")
int BPF_PROG(cgroup_populated, struct cgroup *cgroup, const char *path, int populated)
{
	return changed(cgroup, populated ? EBB_CHANGE_POPULATED : EBB_CHANGE_EMPTIED);
}
