//! What is shown, and how: pure state. Keys and what a source tells go in, rows come out; nothing here reads, waits or draws.

use super::keys::Action;
use super::picture::Picture;
use super::tree::{Row, list, tree};
use crate::workloads::Line;
use ebb_policy::snapshot::WorkloadKey;
use std::cmp::Reverse;
use std::collections::VecDeque;

/// Records that are kept to be shown.
const RECORDS: usize = 200;

/// Characters of a filter.
const LONGEST_FILTER: usize = 60;

/// By what workloads are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Rank,
    Memory,
    Growth,
    Stall,
    Name,
}

impl Sort {
    fn next(self) -> Self {
        match self {
            Self::Rank => Self::Memory,
            Self::Memory => Self::Growth,
            Self::Growth => Self::Stall,
            Self::Stall => Self::Name,
            Self::Name => Self::Rank,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rank => "rank",
            Self::Memory => "memory",
            Self::Growth => "growth",
            Self::Stall => "stall",
            Self::Name => "name",
        }
    }
}

/// What stands before the list, and where keys go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Focus {
    #[default]
    List,
    /// The filter is typed.
    Filter,
    Help,
    /// One workload, with everything that is known of it.
    Details(WorkloadKey),
}

/// Where what is shown comes from.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// A running agent.
    Agent(Link),
    /// A recorded incident: its decisions, and which is shown.
    Recorded { steps: Vec<Step>, at: usize },
}

/// Whether the agent can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Up,
    /// Since when it cannot (milliseconds since the Unix epoch), and why.
    Lost {
        since: u64,
        why: String,
    },
}

/// A recorded decision.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) picture: Picture,
    pub(super) records: Vec<String>,
}

/// What a source tells.
#[derive(Debug)]
pub(super) enum Update {
    Picture(Box<Picture>),
    Record(String),
    /// The agent does not answer since then (milliseconds since the Unix epoch): why.
    Lost(u64, String),
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Continue,
    Quit,
}

/// The screen's state.
#[derive(Debug)]
pub(super) struct Model {
    latest: Picture,
    records: VecDeque<String>,
    /// What is shown instead of the latest, while it is to stay.
    frozen: Option<(Picture, VecDeque<String>)>,
    pub(super) origin: Origin,
    pub(super) sort: Sort,
    pub(super) filter: String,
    pub(super) is_tree: bool,
    pub(super) focus: Focus,
    selected: usize,
    /// The first row that is on screen.
    pub(super) offset: usize,
    /// Rows that fit on the screen.
    page: usize,
}

impl Model {
    /// Of an agent that has answered.
    pub(super) fn live(picture: Picture) -> Self {
        Self::new(picture, VecDeque::new(), Origin::Agent(Link::Up))
    }

    /// Of an incident; `None` when it has no decision.
    pub(super) fn recorded(steps: Vec<Step>) -> Option<Self> {
        let Step { picture, records } = steps.first()?.clone();
        Some(Self::new(picture, records.into(), Origin::Recorded { steps, at: 0 }))
    }

    fn new(latest: Picture, records: VecDeque<String>, origin: Origin) -> Self {
        Self {
            latest,
            records,
            frozen: None,
            origin,
            sort: Sort::default(),
            filter: String::new(),
            is_tree: false,
            focus: Focus::default(),
            selected: 0,
            offset: 0,
            page: 1,
        }
    }

    /// What is on the screen.
    pub(super) fn picture(&self) -> &Picture {
        self.frozen.as_ref().map_or(&self.latest, |(picture, _)| picture)
    }

    /// The records that are on the screen, the newest last.
    pub(super) fn records(&self) -> &VecDeque<String> {
        self.frozen.as_ref().map_or(&self.records, |(_, records)| records)
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// The row that is selected.
    pub(super) fn selected(&self) -> usize {
        self.selected
    }

    /// Takes in what a source tells; what is frozen stays on the screen.
    pub(super) fn take(&mut self, update: Update) {
        match (update, &mut self.origin) {
            (Update::Picture(picture), Origin::Agent(link)) => {
                *link = Link::Up;
                let selected = self.selected_key();
                self.latest = *picture;
                self.follow(selected.as_ref());
            }
            (Update::Lost(at, why), Origin::Agent(link)) => {
                // Since it was first missed.
                let since = match link {
                    Link::Lost { since, .. } => *since,
                    Link::Up => at,
                };
                *link = Link::Lost { since, why };
            }
            (Update::Record(record), _) => {
                if self.records.len() >= RECORDS {
                    self.records.pop_front();
                }
                self.records.push_back(record);
            }
            (_, Origin::Recorded { .. }) => {}
        }
        self.stay_inside();
    }

    /// The workload that is selected. The first row is nobody's choice: it stays the first.
    fn selected_key(&self) -> Option<WorkloadKey> {
        let rows = self.rows();
        let row = rows.get(self.selected).filter(|_| self.selected > 0)?;
        row.line.map(|line| line.key.clone())
    }

    /// Selects a workload where it stands now; one that is gone leaves its row selected.
    fn follow(&mut self, key: Option<&WorkloadKey>) {
        let is_it = |row: &Row<'_>| row.line.is_some_and(|line| Some(&line.key) == key);
        let at = key.and_then(|_| self.rows().iter().position(is_it));
        self.selected = at.unwrap_or(self.selected);
    }

    /// Does what a key asks for.
    pub(super) fn act(&mut self, action: Action) -> Flow {
        let page = self.page.max(1);
        match (action, &self.focus) {
            (Action::Quit, _) => return Flow::Quit,
            (Action::Char(c), Focus::Filter) => {
                if self.filter.chars().count() < LONGEST_FILTER {
                    self.filter.push(c);
                }
                (self.selected, self.offset) = (0, 0);
            }
            (Action::Erase, Focus::Filter) => drop(self.filter.pop()),
            (Action::Accept, Focus::Filter) => self.focus = Focus::List,
            (Action::Cancel, Focus::Filter) => {
                self.filter.clear();
                self.focus = Focus::List;
            }
            (Action::Cancel | Action::Accept | Action::Help, Focus::Help | Focus::Details(_)) => {
                self.focus = Focus::List;
            }
            (Action::Help, _) => self.focus = Focus::Help,
            (Action::Filter, _) => self.focus = Focus::Filter,
            (Action::Accept, Focus::List) => {
                let rows = self.rows();
                let line = rows.get(self.selected).and_then(|row| row.line);
                if let Some(key) = line.map(|line| line.key.clone()) {
                    self.focus = Focus::Details(key);
                }
            }
            (Action::Cancel, Focus::List) => self.filter.clear(),
            (Action::Up, _) => self.selected = self.selected.saturating_sub(1),
            (Action::Down, _) => self.selected = self.selected.saturating_add(1),
            (Action::PageUp, _) => self.selected = self.selected.saturating_sub(page),
            (Action::PageDown, _) => self.selected = self.selected.saturating_add(page),
            (Action::First, _) => self.selected = 0,
            (Action::Last, _) => self.selected = usize::MAX,
            (Action::Sort, _) => {
                self.sort = self.sort.next();
                (self.selected, self.offset) = (0, 0);
            }
            (Action::Tree, _) => {
                self.is_tree = !self.is_tree;
                (self.selected, self.offset) = (0, 0);
            }
            (Action::Freeze, _) => {
                self.frozen = match self.frozen.take() {
                    Some(_) => None,
                    None => Some((self.latest.clone(), self.records.clone())),
                };
            }
            (Action::Earlier, _) => self.step(|at| at.saturating_sub(1)),
            (Action::Later, _) => self.step(|at| at + 1),
            (Action::Char(_) | Action::Erase, _) => {}
        }
        self.stay_inside();
        Flow::Continue
    }

    /// Goes to another decision of the record, if there is one.
    fn step(&mut self, to: impl Fn(usize) -> usize) {
        let Origin::Recorded { steps, at } = &mut self.origin else { return };
        if let Some(step) = steps.get(to(*at)) {
            *at = to(*at);
            self.latest = step.picture.clone();
            self.records = step.records.clone().into();
            self.frozen = None;
        }
    }

    /// The workloads that pass the filter, sorted.
    fn lines(&self) -> Vec<&Line> {
        let wanted = self.filter.to_lowercase();
        let passes = |line: &&Line| line.key.name.to_lowercase().contains(&wanted);
        let mut lines: Vec<&Line> = self.picture().workloads.iter().filter(passes).collect();
        let place = |line: &Line| (line.place.is_none(), line.place);
        // What is unknown comes last, whatever it is sorted by.
        // Equals stay in the order in which they came: their own, with the largest first among those without a place.
        lines.sort_by(|a, b| match self.sort {
            Sort::Rank => place(a).cmp(&place(b)),
            Sort::Memory => Reverse(a.memory).cmp(&Reverse(b.memory)),
            Sort::Growth => Reverse(a.growth).cmp(&Reverse(b.growth)),
            Sort::Stall => Reverse(a.stall).cmp(&Reverse(b.stall)),
            Sort::Name => a.key.cmp(&b.key),
        });
        lines
    }

    /// The rows of the list.
    pub(super) fn rows(&self) -> Vec<Row<'_>> {
        if self.is_tree { tree(&self.lines()) } else { list(&self.lines()) }
    }

    /// Says how many rows fit on the screen: what is selected is one of those shown.
    pub(super) fn fit(&mut self, page: usize) {
        self.page = page;
        self.stay_inside();
    }

    fn stay_inside(&mut self) {
        let count = self.rows().len();
        let page = self.page.max(1);
        self.selected = self.selected.min(count.saturating_sub(1));
        self.offset = self.offset.min(count.saturating_sub(page)).min(self.selected);
        self.offset = self.offset.max((self.selected + 1).saturating_sub(page));
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
