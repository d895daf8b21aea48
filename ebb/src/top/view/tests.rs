//! Screens as text, held against files beside this one. `EBB_BLESS=1` writes them.

use super::*;
use crate::top::keys::Action;
use crate::top::model::{Step, Update};
use crate::top::picture::Picture;
use crate::workloads::{Line, Standing};
use ebb_api::wire::{MemoryPressure, Strength, Threshold, ThresholdState, Unit};
use ebb_policy::snapshot::{WorkloadKey, WorkloadKind};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::path::Path;

const MIB: u64 = 1 << 20;

/// Without a single colour, on a terminal that is not one.
fn drawn(
    model: &mut Model,
    (width, height): (u16, u16),
    has_colour: bool,
) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    model.fit(page(model, Rect::new(0, 0, width, height)));
    let look = Look { has_colour, is_interactive: true };
    terminal.draw(|frame| draw(model, frame.area(), frame.buffer_mut(), look)).unwrap();
    terminal
}

fn screen(model: &mut Model, size: (u16, u16)) -> String {
    text_of(drawn(model, size, false).backend().buffer()).join("\n") + "\n"
}

fn golden(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/top/screens").join(name);
    if std::env::var_os("EBB_BLESS").is_some() {
        std::fs::write(&file, text).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(text == committed, "{name} is another screen (EBB_BLESS=1 writes it):\n{text}");
}

fn threshold(signal: &str, limit: u64, available: u64, capacity: u64) -> Threshold {
    let is_bytes = signal.ends_with("available") && !signal.starts_with("pid");
    Threshold {
        signal: signal.to_owned(),
        unit: if is_bytes { Unit::Bytes } else { Unit::Count }.into(),
        strength: Strength::Hard.into(),
        limit: Some(limit),
        available: Some(available),
        capacity: Some(capacity),
        state: ThresholdState::Clear.into(),
        ..Threshold::default()
    }
}

fn line(name: &str, kind: WorkloadKind, place: Option<u32>) -> Line {
    let standing = if place.is_some() { Standing::Candidate } else { Standing::Protected };
    Line {
        key: WorkloadKey { name: name.to_owned(), ..WorkloadKey::default() },
        kind,
        cgroup: (kind == WorkloadKind::Cgroup).then(|| name.to_owned()),
        memory: None,
        growth: None,
        stall: None,
        priority: None,
        standing,
        place,
        reason: "protected: process 1 is in it".to_owned(),
        keys: String::new(),
    }
}

fn busy() -> Picture {
    let soft = Threshold {
        strength: Strength::Soft.into(),
        state: ThresholdState::Grace.into(),
        grace_left_ms: Some(28_300),
        // It is below the limit already.
        time_left_ms: Some(0),
        ..threshold("memory.available", 1024 * MIB, 900 * MIB, 4096 * MIB)
    };
    let hard = Threshold {
        time_left_ms: Some(12_340),
        ..threshold("memory.available", 500 * MIB, 900 * MIB, 4096 * MIB)
    };
    let unobserved = Threshold {
        signal: "allocatableMemory.available".to_owned(),
        state: ThresholdState::Unobserved.into(),
        strength: Strength::Hard.into(),
        ..Threshold::default()
    };
    let inert = Threshold { state: ThresholdState::Inert.into(), ..soft.clone() };
    let pod = WorkloadKind::Pod;
    let place = |place: u32, name: &str, mib: u64, growth, stall, priority, reason: &str| Line {
        memory: Some(mib * MIB),
        growth,
        stall,
        priority,
        cgroup: Some(format!("/kubepods.slice/burstable/pod{place}")),
        reason: reason.to_owned(),
        keys: format!("measured, {reason}"),
        ..line(name, pod, Some(place))
    };
    let mut workloads = vec![
        place(
            1,
            "shop/batch-report-7d9f8",
            1400,
            Some(351_410_096),
            Some(120_400),
            Some(-10),
            "priority -10",
        ),
        place(2, "shop/web-5c6f7d8b9c-x2x4z", 310, Some(0), Some(0), Some(0), "growth +0 B/s"),
        place(3, "shop/cache-0", 96, Some(-2 << 20), None, None, "last of the candidates"),
    ];
    workloads
        .push(Line { memory: Some(48 * MIB), ..line("/init.scope", WorkloadKind::Cgroup, None) });
    workloads.push(Line {
        standing: Standing::Terminating,
        reason: "terminating: what it frees is counted".to_owned(),
        ..line("shop/gone-1", pod, None)
    });
    workloads.push(Line {
        standing: Standing::Spared,
        memory: Some(4096),
        reason: "frees too little".to_owned(),
        ..line("/system.slice/tiny.service", WorkloadKind::Cgroup, None)
    });
    Picture {
        version: "0.1.0".to_owned(),
        mode: "enforcing",
        at: Some(1_795_627_237_123),
        looked_at: Some(1_795_627_237_000),
        workload_count: Some(6),
        incidents: vec!["1795627235136-memory.available".to_owned()],
        thresholds: vec![
            hard,
            unobserved,
            soft,
            inert,
            threshold("nodefs.available", 1024 * MIB, 40_000 * MIB, 100_000 * MIB),
            threshold("nodefs.inodesFree", 5000, 90_000, 100_000),
            threshold("imagefs.available", 1024 * MIB, 30_000 * MIB, 100_000 * MIB),
            threshold("pid.available", 1500, 29_800, 30_000),
        ],
        pressures: vec![MemoryPressure {
            cgroup: "/user.slice".to_owned(),
            limit: 4000,
            full_avg10: Some(1234),
        }],
        workloads,
        seen_at: Some(1_795_627_225_000),
        left_out: 0,
        ranked_for: "memory.available".to_owned(),
        untold: None,
        decision: None,
    }
}

fn model() -> Model {
    let mut model = Model::live(busy());
    for record in [
        "17:20:35.136 memory.available crossed its threshold: 900.0 MiB < 1.0 GiB, seen 2.4 ms later",
        "17:20:36.000 eviction on memory.available deferred: a reason",
    ] {
        model.take(Update::Record(record.to_owned()));
    }
    model
}

#[test]
fn everything_that_matters_is_on_eighty_by_twenty_four_without_colour() {
    golden("busy.80x24.txt", &screen(&mut model(), (80, 24)));
}

#[test]
fn a_wide_screen_cuts_nothing_off() {
    let text = screen(&mut model(), (140, 40));
    assert!(!text.contains('~'), "{text}");
    golden("busy.140x40.txt", &text);
}

#[test]
fn colour_says_nothing_that_is_not_said_without_it() {
    let (mut with, mut without) = (model(), model());
    let with = drawn(&mut with, (80, 24), true);
    let without = drawn(&mut without, (80, 24), false);
    let (with, without) = (with.backend().buffer(), without.backend().buffer());
    assert_eq!(text_of(with), text_of(without));
    let colours = |buf: &Buffer| {
        let reset = ratatui::style::Color::Reset;
        buf.content.iter().any(|cell| (cell.fg, cell.bg) != (reset, reset))
    };
    assert!(colours(with) && !colours(without));
}

#[test]
fn the_tree_sums_up_what_is_below_a_cgroup() {
    let mut model = model();
    model.act(Action::Tree);
    golden("tree.80x24.txt", &screen(&mut model, (80, 24)));
}

#[test]
fn help_details_and_the_filter_are_laid_over_the_list() {
    let mut model = model();
    model.act(Action::Help);
    golden("help.80x24.txt", &screen(&mut model, (80, 24)));
    model.act(Action::Cancel);
    model.act(Action::Accept);
    golden("details.80x24.txt", &screen(&mut model, (80, 24)));
    model.act(Action::Cancel);
    model.act(Action::Filter);
    for letter in "web".chars() {
        model.act(Action::Char(letter));
    }
    golden("filter.80x24.txt", &screen(&mut model, (80, 24)));
}

#[test]
fn an_agent_that_is_gone_and_a_screen_that_stays_say_so() {
    let mut model = model();
    model.take(Update::Lost(1_795_627_240_000, "the connection was lost".to_owned()));
    let text = screen(&mut model, (80, 24));
    assert!(text.contains("NO ANSWER"), "{text}");
    assert!(text.contains("no answer from the agent since 17:20:40 UTC, asking again"), "{text}");
    model.act(Action::Freeze);
    assert!(screen(&mut model, (80, 24)).contains("FROZEN"));
}

#[test]
fn an_empty_node_is_shown_as_one_and_what_nobody_told_as_unknown() {
    let mut empty = Model::live(Picture {
        version: "0.1.0".to_owned(),
        seen_at: Some(1),
        ranked_for: "memory.available".to_owned(),
        ..Picture::default()
    });
    golden("empty.80x24.txt", &screen(&mut empty, (80, 24)));
    let told_of_nothing = Line {
        standing: Standing::Unknown,
        reason: String::new(),
        ..line("/new", WorkloadKind::Process, None)
    };
    let picture = Picture {
        thresholds: vec![Threshold::default()],
        workloads: vec![told_of_nothing],
        ..Picture::default()
    };
    let mut unknown = Model::live(picture);
    unknown.act(Action::Accept);
    golden("unknown.80x24.txt", &screen(&mut unknown, (80, 24)));
}

#[test]
fn an_agent_that_does_not_know_the_call_is_said_to_be_older() {
    let node = ebb_api::wire::GetNodeResponse::default();
    let mut model = Model::live(Picture::of(node, None));
    let text = screen(&mut model, (80, 24));
    assert!(text.contains("this agent is older than `ebb top`"), "{text}");
    assert!(text.contains("evicted first: unknown"), "{text}");
}

#[test]
fn no_name_record_or_reason_speaks_to_the_terminal() {
    let evil = "/a\x1b[2J\r\n\u{202e}\u{9b}31m日本";
    let mut picture = busy();
    for text in [&mut picture.version, &mut picture.ranked_for] {
        text.push_str(evil);
    }
    picture.incidents.push(evil.to_owned());
    for line in &mut picture.workloads {
        line.key.name.insert_str(0, evil);
        line.reason.insert_str(0, evil);
        line.cgroup = Some(evil.to_owned());
    }
    for threshold in &mut picture.thresholds {
        threshold.signal.push_str(evil);
    }
    let mut model = Model::live(picture);
    model.take(Update::Record(evil.to_owned()));
    let written_out = r"\u{1b}[2J\r\n\u{202e}\u{9b}31m日本";
    // The list, the tree, and the details of one.
    for action in [Action::Tree, Action::Tree, Action::Accept, Action::Cancel] {
        let terminal = drawn(&mut model, (80, 24), false);
        for cell in &terminal.backend().buffer().content {
            let speaks = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
            assert!(!cell.symbol().contains(speaks), "{:?}", cell.symbol());
        }
        let text = lines(&model, 300);
        let evil = text.iter().filter(|line| line.contains(written_out)).count();
        // Version, incidents and the first victim in the header, and what is below it.
        assert!(evil >= 5, "{evil} of\n{}", text.join("\n"));
        model.act(action);
    }
}

#[test]
fn every_size_is_drawn() {
    let mut model = model();
    for (width, height) in [(1, 1), (39, 24), (40, 12), (80, 13), (500, 200), (45, 30)] {
        for action in [Action::Tree, Action::Help, Action::Cancel, Action::Accept, Action::Cancel] {
            screen(&mut model, (width, height));
            model.act(action);
        }
    }
    assert!(screen(&mut model, (39, 24)).starts_with("too small: 80x24 is wanted"));
}

#[test]
fn a_recorded_incident_is_shown_as_its_decisions_were_made() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/incidents/leak.json");
    let incident = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let steps: Vec<Step> = crate::top::replay::steps("an-id", &incident);
    let mut model = Model::recorded(steps).unwrap();
    golden("replay.80x24.txt", &screen(&mut model, (80, 24)));
}
