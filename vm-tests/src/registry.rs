//! Every guest test by name, with the machine it needs and how long it may take.
use crate::bench::{self, idle, observers, race};
use crate::checks::{
    self, attribution, busy_node, collection, daemonset, demo, disguised_pods, disk, edges,
    enforcement, eviction, hostile, innocence, interrupted, keeping, kubelet, kubelet_disk,
    kubernetes, leaks, memory_lock, memory_pressure, packages, pressure, privileges, programs,
    reflex, runtime, runtime_pods, service, set_aside, soft_eviction, steps, storms, swap, sweep,
};
use crate::soak;
use anyhow::Result;

/// One test.
#[derive(Debug)]
pub(crate) struct Test {
    /// A claim in the present tense; `matrix.toml` and filters refer to it.
    pub(crate) name: &'static str,
    /// A machine of `matrix.toml`.
    pub(crate) machine: &'static str,
    /// Seconds, on a loaded host under TCG.
    pub(crate) timeout: u64,
    pub(crate) run: fn(&Context) -> Result<Outcome>,
}

/// What a test that did not fail says.
#[derive(Debug)]
pub(crate) enum Outcome {
    Passed,
    /// The kernel lacks what the test is about.
    Skipped(String),
}

/// What a test is given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    pub(crate) name: &'static str,
}

const fn test(
    name: &'static str,
    machine: &'static str,
    timeout: u64,
    run: fn(&Context) -> Result<Outcome>,
) -> Test {
    Test { name, machine, timeout, run }
}

/// In the order in which they run: what the later ones rely on comes first.
pub(crate) const TESTS: &[Test] = &[
    test("this_kernel_has_what_ebb_builds_on", "small", 30, checks::kernel::has_the_basics),
    test("cgroup_kill_empties_a_subtree", "small", 60, checks::kernel::cgroup_kill),
    test("a_limited_cgroup_is_oom_killed_alone", "small", 60, checks::kernel::limited_oom),
    test("this_kernel_can_run_our_programs", "small", 60, programs::run_here),
    test("two_capabilities_are_enough", "small", 60, programs::run_with_two_capabilities),
    test("every_exit_is_delivered_or_counted", "small", 240, programs::every_exit),
    test("a_full_ring_counts_what_it_loses", "small", 90, programs::small_ring),
    test("lockdown_leaves_the_rust_tier_alive", "lockdown", 90, programs::survive_lockdown),
    test("an_oom_kill_is_blamed_on_the_limit", "small", 90, attribution::limited_oom),
    test("an_oom_kill_without_limit_is_the_nodes", "small", 120, attribution::global_oom),
    test("fork_counters_agree_with_the_files", "small", 90, attribution::fork_counter),
    test("thrash_counters_agree_with_the_files", "small", 120, attribution::thrash_counters),
    test("a_sweep_agrees_with_the_files", "small", 120, sweep::agrees),
    test("a_sweep_tells_statistics", "small", 60, sweep::tells_statistics),
    test("a_sweep_begins_at_the_root", "small", 60, sweep::from_the_root),
    test("a_sweep_among_removals_has_no_partial_records", "small", 240, sweep::among_removals),
    test("a_sweep_holds_five_thousand_cgroups", "small", 600, sweep::five_thousand),
    test("ebb_check_finds_everything_live", "small", 60, edges::check_command),
    test("ebb_events_shows_what_happens", "small", 120, edges::events_command),
    test("a_dry_run_harms_nobody", "agent", 120, leaks::dry_run),
    test("a_leak_at_full_speed_is_stopped_in_time", "node", 120, leaks::full_speed),
    test("a_calm_node_lets_ebb_sleep_and_a_leak_wakes_it", "node", 120, leaks::out_of_the_calm),
    test("a_leak_behind_a_dead_leader_is_stopped", "node", 120, leaks::leaderless),
    test("a_leak_in_tmpfs_is_stopped", "node", 120, leaks::in_tmpfs),
    test("a_leak_is_stopped_without_bpf", "node", 120, leaks::without_bpf),
    test("the_reflex_ends_nobody_after_its_lease", "small", 120, reflex::leases),
    test("the_reflex_ends_nobody_who_is_protected", "small", 120, reflex::protection),
    test("the_reflex_ends_nobody_whose_pid_was_recycled", "small", 120, reflex::recycled_pid),
    test("the_reflex_ends_nobody_for_what_another_takes", "small", 120, reflex::another_takes_it),
    test("the_reflex_ends_a_leak_while_ebb_is_stopped", "node", 300, reflex::stopped_agent),
    test("the_reflex_ends_a_leak_while_ebb_is_starved", "node", 300, reflex::starved_agent),
    test("what_the_reflex_did_is_on_record", "node", 120, reflex::is_told),
    test("who_is_evicted_ends_although_all_are_busy", "crowd", 900, leaks::ends_among_the_busy),
    test("a_stubborn_leak_is_killed_after_its_grace", "agent", 120, leaks::stubborn),
    test("five_leaks_at_once_and_no_innocent_dies", "crowd", 600, leaks::five_at_once),
    test("a_leak_that_began_while_ebb_was_held_up_goes_alone", "crowd", 240, leaks::while_held_up),
    test("a_cgroup_at_its_own_limit_costs_nobody_else", "agent", 180, innocence::own_limit),
    test("an_io_storm_with_free_memory_kills_nobody", "agent", 180, innocence::io_storm),
    test("a_page_cache_flood_kills_nobody", "agent", 240, innocence::page_cache),
    test("a_leak_goes_when_memory_and_swap_are_short", "swap", 300, swap::on_a_disk),
    test("a_leak_goes_when_memory_and_zram_are_short", "zram", 300, swap::on_zram),
    test("memory_that_is_set_aside_for_a_moment_kills_nobody", "balloon", 240, set_aside::reported),
    test("who_makes_a_slice_stall_goes_if_asked", "swap", 400, memory_pressure::hog_in_a_slice),
    test("no_disguise_saves_a_leak", "hostile", 240, hostile::disguises),
    test("a_leak_that_moves_away_from_what_it_took_is_killed", "hostile", 240, hostile::moves),
    test("a_leak_that_never_rests_costs_nobody_elses_life", "hostile", 400, hostile::never_rests),
    test(
        "a_victim_whose_memory_lock_hangs_holds_up_no_other_kill",
        "hostile",
        400,
        memory_lock::hangs,
    ),
    test("the_ninth_process_protects_its_cgroup", "hostile", 120, hostile::ninth),
    test("a_kubelet_is_known_by_its_program", "hostile", 120, hostile::kubelet),
    test("a_kubelet_that_cannot_be_looked_at_lives", "hostile", 120, hostile::kubelet_unread),
    test("steps_are_taken_and_undone", "hostile", 240, steps::taken_and_undone),
    test("the_privileges_that_are_kept_suffice", "small", 240, privileges::suffice),
    test("without_cap_kill_signals_are_refused", "hostile", 120, privileges::kill),
    test("without_cap_dac_override_users_are_signalled", "hostile", 120, privileges::dac_override),
    test(
        "without_cap_dac_read_search_volumes_are_not_measured",
        "collector",
        400,
        privileges::dac_read_search,
    ),
    test("without_cap_sys_ptrace_a_kubelets_name_counts", "hostile", 120, privileges::ptrace),
    test("without_cap_sys_admin_trusted_marks_are_unread", "hostile", 120, privileges::admin),
    test("without_cap_bpf_or_perfmon_files_are_read", "hostile", 120, privileges::bpf),
    test("without_cap_sys_resource_the_trigger_is_slow", "hostile", 120, privileges::resource),
    test("without_cap_ipc_lock_memory_is_not_locked", "hostile", 120, privileges::ipc_lock),
    test("without_cap_sys_nice_ebb_waits_its_turn", "hostile", 120, privileges::nice),
    test("who_waits_and_who_is_the_cause_is_told", "crowd", 480, attribution::sufferer_and_cause),
    test("a_fork_bomb_is_ended", "agent", 240, edges::fork_bomb),
    test("plan_enforcement_and_audit_agree_on_fifty_pods", "agent", 180, enforcement::agreement),
    test("drift_in_every_enforced_file_is_repaired", "agent", 180, keeping::drift),
    test("a_new_pod_has_its_values_in_time", "crowd", 180, keeping::new_pods),
    test("a_lowered_limit_kills_nobody", "agent", 180, enforcement::lowered),
    test("leftover_pods_go_and_live_ones_stay", "agent", 240, enforcement::leftovers),
    test("values_of_units_survive_systemd", "systemd", 180, enforcement::systemd_driver),
    test("the_shipped_unit_is_ready_hardened_and_restarted", "systemd", 400, service::shipped_unit),
    test("two_hundred_pods_at_once_cost_nobody_anything", "crowd", 300, storms::boot),
    test("pods_that_take_too_much_at_once_cost_few", "crowd", 300, storms::overcommitted),
    test("a_leak_in_a_nested_container_ends_alone", "agent", 180, storms::nested),
    test("who_is_to_die_together_does_and_others_do_not", "agent", 240, storms::groups),
    test("removed_cgroups_that_hold_memory_hide_no_leak", "small", 300, storms::removed_cgroups),
    test("a_step_of_the_clock_evicts_nobody", "agent", 240, interrupted::clock_steps),
    test("no_grace_runs_out_while_the_machine_sleeps", "agent", 300, interrupted::suspended),
    test("an_eviction_outlives_the_agent_that_began_it", "agent", 240, interrupted::agent_dies),
    test("who_cannot_end_is_given_up_and_the_next_goes", "hostile", 240, interrupted::victim_hangs),
    test(
        "a_leak_is_killed_while_the_configuration_hangs",
        "hostile",
        240,
        interrupted::configuration_hangs,
    ),
    test("with_all_protected_nobody_is_killed", "agent", 180, interrupted::all_protected),
    test("a_leak_is_killed_while_the_runtime_hangs", "collector", 400, interrupted::hung_runtime),
    test("a_victim_that_vanishes_harms_nobody", "agent", 240, edges::vanishing_victim),
    test("the_runtime_is_known", "containerd", 180, runtime::is_known),
    test(
        "layers_predict_what_the_disk_gets_back",
        "containerd",
        180,
        runtime::layers_predict_the_disk,
    ),
    test("a_pod_lives_and_its_end_is_told", "containerd", 180, runtime::a_life),
    test("a_killed_runtime_is_found_again", "containerd", 240, runtime::survives_a_restart),
    test("a_hung_runtime_costs_one_deadline", "containerd", 180, runtime::survives_a_hang),
    test("pods_of_a_runtime_are_held_to_its_word", "containerd", 240, runtime_pods::held),
    test("no_name_saves_a_leak_in_a_container", "collector", 400, disguised_pods::leaks_go),
    test(
        "a_files_project_hides_nothing_and_blames_nobody",
        "collector",
        400,
        pressure::project_quotas,
    ),
    test(
        "an_ended_container_does_not_wait_for_the_beat",
        "collector",
        400,
        collection::before_the_beat,
    ),
    test("unused_images_suffice_for_inodes", "collector", 400, pressure::images_suffice),
    test("dead_containers_suffice_for_inodes", "collector", 400, pressure::dead_containers_suffice),
    test("who_fills_the_disk_is_evicted_and_nobody_else", "disk", 600, disk::once),
    test("leaks_among_everything_else_cost_nobody_else", "soak", 900, soak::three_minutes),
    test("an_old_runtime_is_named", "old-containerd", 120, runtime::old_is_named),
];

/// What `cargo xtask demo` shows.
pub(crate) const DEMO: &[Test] = &[test("demo", "node", 180, demo::play)];

/// What `cargo xtask soak` runs, for as long as it is told: a day and an hour at most.
pub(crate) const SOAK: &[Test] = &[test("soak", "soak", 90_000, soak::as_told)];

/// More of collection and eviction on every real containerd, and ebb's package; run by `cargo xtask vm --long`: each takes minutes under emulation.
pub(crate) const LONG: &[Test] = &[
    test(
        "an_exited_container_is_collected_within_a_second",
        "containerd",
        1800,
        collection::within_a_second,
    ),
    test(
        "images_go_from_the_high_threshold_to_the_low_one",
        "containerd",
        300,
        collection::images_by_thresholds,
    ),
    test(
        "either_may_die_in_the_middle_of_a_collection",
        "containerd",
        400,
        collection::either_dies,
    ),
    test("no_more_copies_than_allowed_are_left", "containerd", 300, collection::copies),
    test(
        "images_go_by_age_and_not_before_ebb_is_as_old",
        "containerd",
        400,
        collection::images_by_age,
    ),
    test("the_package_is_installed_upgraded_and_purged", "debian", 900, packages::a_life),
    test("many_evictions_leave_nothing_behind", "containerd", 5400, eviction::many),
    test(
        "a_kubelets_own_eviction_leaves_no_more_than_ebbs",
        "kubelet",
        900,
        kubelet::evicts_itself,
    ),
    test("a_kubelet_starts_again_what_was_killed", "kubelet", 600, kubelet::starts_again),
    test(
        "a_pod_that_its_kubelet_starts_again_is_evicted_again",
        "kubelet",
        2400,
        kubelet::evicted_again,
    ),
    test("an_eviction_is_told_to_the_cluster", "kubelet", 1500, kubernetes::told),
    test("an_eviction_waits_for_no_api_server", "kubelet", 1200, kubernetes::told_later),
    test("a_starved_node_starts_nothing_evicted_again", "kubelet", 5400, busy_node::starved),
    test("five_leaking_pods_go_and_nobody_else", "kubelet", 3600, busy_node::five_at_once),
    test("ebb_runs_from_its_image_as_a_daemon_set", "cluster", 1800, daemonset::deployed),
    test(
        "a_soft_eviction_obeys_budgets_and_drains_its_service",
        "cluster",
        1800,
        soft_eviction::obeys_budgets_and_drains,
    ),
    test("who_fills_a_kubelets_disk_is_evicted", "kubelet", 5400, kubelet_disk::filled),
    test("an_eviction_for_disk_is_told_to_the_cluster", "kubelet", 3000, kubelet_disk::told),
    test("a_hung_runtime_delays_no_kill", "containerd", 900, eviction::hung_runtime),
    test("who_fills_the_disk_is_evicted_ten_times", "disk", 5400, disk::ten_times),
    test("unused_images_suffice_for_inodes", "containerd", 240, pressure::images_suffice),
    test(
        "dead_containers_suffice_for_inodes",
        "containerd",
        240,
        pressure::dead_containers_suffice,
    ),
    test("only_who_is_over_a_limit_of_its_own_goes", "containerd", 400, pressure::local_limits),
    test("by_memory_the_lowest_priority_goes_first", "containerd", 240, pressure::order_by_memory),
    test("by_disk_the_lowest_priority_goes_first", "containerd", 240, pressure::order_by_disk),
    test("by_task_ids_the_lowest_priority_goes_first", "containerd", 240, pressure::order_by_pids),
];

/// Measurements: they pass when they could be taken, so a plain run leaves them out.
pub(crate) const BENCHES: &[Test] = &[
    test("race_ebb", "race", 900, race::ebb),
    test("race_earlyoom", "race", 900, race::earlyoom),
    test("race_nohang", "race", 900, race::nohang),
    test("race_systemd-oomd", "systemd", 1500, race::oomd),
    test("idle_ebb", "race", 300, idle::ebb),
    test("idle_earlyoom", "race", 300, idle::earlyoom),
    test("idle_nohang", "race", 300, idle::nohang),
    test("observers_ebb", "race", 2400, observers::ebb),
    test("programs_costs", "small", 300, bench::programs::costs),
    test("reflex_beside_user_space", "node", 1500, bench::reflex::beside_user_space),
    test("reconciler_times", "node", 400, keeping::measure),
    test("removal_ebb", "containerd", 1800, collection::measure),
    test("sweep_500", "node", 300, bench::sweep::five_hundred),
    test("sweep_5000", "node", 900, bench::sweep::five_thousand),
];

pub(crate) fn find(name: &str) -> Option<&'static Test> {
    TESTS.iter().chain(LONG).chain(DEMO).chain(SOAK).chain(BENCHES).find(|test| test.name == name)
}

/// For the host: one line per test.
pub(crate) fn list(tests: &[Test]) {
    for test in tests {
        println!("{} {} {}", test.name, test.machine, test.timeout);
    }
}
