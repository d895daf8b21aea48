//! `ebb top` in a real terminal: beside an agent on a fake node, and on a recorded incident. `EBB_BLESS=1` writes the screens.

mod terminal;

use crate::{Agent, config, ebb, start};
use ebb_tests::fake_node::{FakeCgroup, FakeNode};
use ebb_tests::repository;
use nix::sys::signal::Signal;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::{NamedTempFile, TempDir};
use terminal::Terminal;

const CONFIG: &str = "\
evictionHard:
  memory.available: 100Mi
ebb:
  memoryAvailable: memAvailable
  protected: [\"apps/database\"]
  priorities:
    - {match: \"apps/batch-*\", priority: -10}
";

/// What a name may try.
const EVIL: &str = "apps/evil\x1b[2J\x1b[31m";

/// An agent with an API, on a node with something to show.
struct Served {
    node: FakeNode,
    hog: FakeCgroup,
    agent: Agent,
    config: NamedTempFile,
    _dir: TempDir,
    socket: PathBuf,
}

impl Served {
    fn new() -> Self {
        let mut node = FakeNode::new();
        let hog = node.add("apps/hog", 1500);
        node.add("apps/batch-report", 600);
        node.add("apps/database", 700);
        node.add("system.slice/web.service", 96);
        node.add(EVIL, 8);
        node.add("apps/idle", 0);
        let (config, dir) = (config(CONFIG), tempfile::tempdir().unwrap());
        let socket = dir.path().join("api.sock");
        let agent = serve(&node, config.path(), &socket);
        Self { node, hog, agent, config, _dir: dir, socket }
    }

    fn top(&self, extra: &[&str]) -> Terminal {
        let mut command = top(extra);
        command.args(["--interval", "0.1", "--api"]).arg(&self.socket);
        Terminal::run(command, 80, 24)
    }
}

fn serve(node: &FakeNode, config: &Path, socket: &Path) -> Agent {
    start(node, config, &["--api", socket.to_str().unwrap()])
}

fn top(extra: &[&str]) -> Command {
    let mut command = ebb();
    command.arg("top").args(extra).env("TERM", "xterm-256color").env_remove("NO_COLOR");
    command
}

fn incident() -> PathBuf {
    repository().join("tests/incidents/leak.json")
}

/// A screen without what changes from run to run: times of day, and how long ago something was.
fn lasting(screen: &str) -> String {
    let mut lasting = String::new();
    let is_time = |word: &str| {
        let digits = word.chars().filter(char::is_ascii_digit).count();
        digits >= 6 && word.chars().all(|c| c.is_ascii_digit() || ":.".contains(c))
    };
    for line in screen.lines() {
        let masked = line.split(' ').map(|word| {
            match word.strip_suffix('s').and_then(|n| n.parse::<u64>().ok()) {
                Some(_) => "Ns",
                None if is_time(word) => "TIME",
                None => word,
            }
        });
        let words: Vec<&str> = masked.collect();
        // How much room is left beside them is as changing as they are.
        let is_changed = words.join(" ") != line;
        let words = words.into_iter().filter(|word| !is_changed || !word.is_empty());
        let words: Vec<&str> = words.collect();
        lasting.push_str(words.join(" ").trim_end());
        lasting.push('\n');
    }
    lasting
}

fn golden(name: &str, screen: &str) {
    let screen = lasting(screen);
    let file = repository().join("tests/tests/agent/top/screens").join(name);
    if std::env::var_os("EBB_BLESS").is_some() {
        std::fs::write(&file, &screen).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(screen == committed, "{name} is another screen (EBB_BLESS=1 writes it):\n{screen}");
}

#[test]
fn a_live_node_is_sorted_filtered_frozen_and_explained_and_the_terminal_is_given_back() {
    let served = Served::new();
    let mut terminal = served.top(&["--color", "never"]);
    golden("live.80x24.txt", &terminal.says(" started, "));
    assert!(terminal.with(|screen| screen.alternate_screen() && screen.hide_cursor()));
    terminal.types("s");
    golden("memory.80x24.txt", &terminal.says("by memory"));
    terminal.types("t");
    golden("tree.80x24.txt", &terminal.says("CGROUPS"));
    terminal.types("t/DATA");
    terminal.says("filter: DATA_");
    terminal.types("\r");
    terminal.shows("the database alone", |text| {
        text.contains("WORKLOADS 1-1 of 1") && text.contains("/apps/database")
    });
    terminal.types("\r");
    let details = terminal.says("standing  never evicted");
    assert!(details.contains("protected: the configuration"), "{details}");
    terminal.types("\x1b");
    terminal.says("WORKLOADS 1-1");
    terminal.types("?");
    terminal.says("KEYS (Esc goes back)");
    terminal.types("?f");
    terminal.says("FROZEN");
    let frozen = terminal.text();
    served.node.set_available(1024);
    let asked = |text: &str| text.contains("1.0 GiB");
    let mut other = served.top(&[]);
    other.shows("less memory", asked);
    other.types("q");
    assert!(other.given_back().0.success());
    assert_eq!(terminal.text(), frozen, "it moves while it is frozen");
    terminal.types("f");
    terminal.shows("less memory", asked);
    terminal.resize(40, 12);
    terminal
        .shows("a smaller screen", |text| text.lines().count() == 12 && text.contains("q quit"));
    terminal.types("\x03");
    let (status, screen) = terminal.given_back();
    assert!(status.success(), "{status}");
    assert!(!screen.contains("memory.available"), "it left its screen behind:\n{screen}");
    served.agent.stop();
}

#[test]
fn an_eviction_is_seen_as_it_happens_and_a_new_agent_takes_over() {
    let Served { node, hog, agent, config, _dir, socket } = Served::new();
    let mut command = top(&["--interval", "0.1", "--api"]);
    command.arg(&socket);
    let mut terminal = Terminal::run(command, 100, 40);
    terminal.says("live");
    node.set_available(60);
    terminal.says("incident going on: ");
    terminal.says("memory.available crossed its threshold");
    terminal.shows("a victim that a dry run leaves alone", |text| {
        let is_said = |line: &str| {
            line.contains("dry /apps/batch-report") && line.contains("dry run: would have been")
        };
        text.lines().any(is_said)
    });
    drop(hog);
    agent.stop();
    let lost = terminal.says("NO ANSWER");
    assert!(
        lost.contains("no answer from the agent since") && lost.contains("/apps/hog"),
        "{lost}"
    );
    node.set_available(2048);
    let agent = serve(&node, config.path(), &socket);
    terminal.shows("the new agent", |text| {
        text.contains("-- another run of ebb --") && text.contains("live")
    });
    terminal.says("no incident going on");
    terminal.types("q");
    assert!(terminal.given_back().0.success());
    agent.stop();
}

#[test]
fn a_recorded_incident_is_shown_in_a_terminal_and_as_text() {
    let replay = |extra: &[&str]| {
        let mut command = top(extra);
        command.arg("--replay").arg(incident());
        command
    };
    let mut terminal = Terminal::run(replay(&["--color", "never"]), 80, 24);
    let screen = terminal.says("decision 1 of 1");
    golden("replay.80x24.txt", &screen);
    terminal.types("q");
    assert!(terminal.given_back().0.success());
    let output = replay(&["--once"]).env("COLUMNS", "110").output().unwrap();
    assert!(output.status.success());
    golden("replay.once.txt", &String::from_utf8(output.stdout).unwrap());
}

#[test]
fn one_screen_is_printed_where_there_is_no_terminal() {
    let served = Served::new();
    let output = top(&["--once", "--api"]).arg(&served.socket).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!text.contains('\x1b'), "{text}");
    golden("live.once.txt", &text);
    served.agent.stop();
}

#[test]
fn colours_are_used_only_where_they_are_wanted() {
    let replay = |extra: &[&str], no_color: &str| {
        let mut command = top(extra);
        command.arg("--replay").arg(incident()).env("NO_COLOR", no_color);
        let terminal = Terminal::run(command, 80, 24);
        terminal.says("decision 1 of 1");
        terminal.with(|screen| {
            let cells = (0..24).flat_map(|row| (0..80).map(move |column| (row, column)));
            let mut cells = cells.filter_map(|(row, column)| screen.cell(row, column));
            cells.any(|cell| cell.fgcolor() != vt100::Color::Default)
        })
    };
    assert!(replay(&[], ""));
    assert!(!replay(&[], "1"));
    assert!(!replay(&["--color", "never"], ""));
    assert!(replay(&["--color", "always"], "1"));
}

#[test]
fn the_terminal_is_given_back_after_a_signal_and_after_a_panic() {
    let replay = || {
        let mut command = top(&["--replay"]);
        command.arg(incident());
        command
    };
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let terminal = Terminal::run(replay(), 80, 24);
        terminal.says("decision 1 of 1");
        terminal.signal(signal);
        assert!(terminal.given_back().0.success(), "{signal}");
    }
    let mut command = replay();
    command.env("EBB_TEST_PANIC", "ebb-top-keys");
    let terminal = Terminal::run(command, 80, 24);
    let (status, screen) = terminal.given_back_with("ebb: a thread of it panicked");
    assert_eq!(status.code(), Some(1), "{screen}");
    assert!(screen.contains("EBB_TEST_PANIC asks ebb-top-keys for it"), "{screen}");
}

#[test]
fn what_is_no_terminal_no_agent_and_no_record_is_refused_by_name() {
    let refused = |mut command: Command| {
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, told) = refused(top(&[]));
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("no terminal") && told.contains("`ebb status`"), "{told}");
    let (code, told) = refused(top(&["--once", "--api", "/nonexistent/api.sock"]));
    assert_eq!(code, Some(3), "{told}");
    assert!(told.contains("`ebb run --api /nonexistent/api.sock` serves one"), "{told}");
    let (code, told) = refused(top(&["--once", "--replay", "/nonexistent.json"]));
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("/nonexistent.json"), "{told}");
    let (code, told) = refused(top(&["--interval", "0"]));
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("give 0.1 to 3600 seconds"), "{told}");
    let mut command = top(&["--replay"]);
    command.arg(incident()).env("TERM", "dumb");
    let terminal = Terminal::run(command, 80, 24);
    terminal.says("no terminal that a screen can be drawn on");
    assert_eq!(terminal.given_back().0.code(), Some(2));
}
