//! Workloads below the cgroups that they are in: rows in the order of the table, so that a branch stands where its first workload would.

use crate::workloads::Line;
use ebb_policy::snapshot::WorkloadKind;

/// A row of the list of workloads.
#[derive(Debug)]
pub(super) struct Row<'a> {
    /// How deep it lies in the tree; 0 in a plain list.
    pub(super) depth: usize,
    /// What it is called there.
    pub(super) label: String,
    /// The workload; `None` for a cgroup above others.
    pub(super) line: Option<&'a Line>,
    pub(super) memory: Memory,
}

/// Bytes of memory of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    Unknown,
    Known(u64),
    /// The sum of those below it that are known; of some it is not.
    AtLeast(u64),
}

#[derive(Debug, Default)]
struct Node<'a> {
    label: String,
    line: Option<&'a Line>,
    children: Vec<Node<'a>>,
}

/// A plain list.
pub(super) fn list<'a>(lines: &[&'a Line]) -> Vec<Row<'a>> {
    let row = |line: &&'a Line| Row {
        depth: 0,
        label: line.key.name.clone(),
        line: Some(line),
        memory: line.memory.map_or(Memory::Unknown, Memory::Known),
    };
    lines.iter().map(row).collect()
}

/// The same as a tree.
pub(super) fn tree<'a>(lines: &[&'a Line]) -> Vec<Row<'a>> {
    let mut root = Node::default();
    for line in lines {
        let line: &'a Line = line;
        let is_cgroup = line.kind == WorkloadKind::Cgroup;
        let path = match line.cgroup.as_deref() {
            Some(path) if is_cgroup => path,
            // A pod stands in the place of its cgroup.
            Some(path) => path.rsplit_once('/').map_or("", |(above, _)| above),
            None => "/(cgroup unknown)",
        };
        let mut at = &mut root;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            at = at.child(part);
        }
        if is_cgroup && line.cgroup.is_some() && at.line.is_none() {
            at.line = Some(line);
        } else {
            let label = line.key.name.clone();
            at.children.push(Node { label, line: Some(line), children: Vec::new() });
        }
    }
    let mut rows = Vec::new();
    if let Some(line) = root.line {
        // The root cgroup itself is a workload.
        root.children.insert(0, Node { label: "/".to_owned(), line: Some(line), children: vec![] });
    }
    for child in &root.children {
        child.add_to(&mut rows, 0);
    }
    rows
}

impl<'a> Node<'a> {
    fn child(&mut self, label: &str) -> &mut Self {
        let place = self.children.iter().position(|child| child.label == label);
        let place = place.unwrap_or_else(|| {
            self.children.push(Node { label: label.to_owned(), ..Node::default() });
            self.children.len() - 1
        });
        // It was found there, or has just been put there.
        #[expect(clippy::indexing_slicing, reason = "the place is one of the children")]
        &mut self.children[place]
    }

    fn add_to(&self, rows: &mut Vec<Row<'a>>, depth: usize) {
        let (mut at, mut label) = (self, self.label.clone());
        // Cgroups with nothing but one cgroup in them share a row.
        while let (None, [only]) = (at.line, at.children.as_slice()) {
            if only.line.is_some_and(|line| line.kind != WorkloadKind::Cgroup) {
                break;
            }
            label = format!("{label}/{}", only.label);
            at = only;
        }
        rows.push(Row { depth, label, line: at.line, memory: at.memory() });
        at.children.iter().for_each(|child| child.add_to(rows, depth + 1));
    }

    /// Its own where it is a workload, else the sum of those below it.
    fn memory(&self) -> Memory {
        if let Some(line) = self.line {
            return line.memory.map_or(Memory::Unknown, Memory::Known);
        }
        let add = |sum: Option<Memory>, child: &Node<'a>| {
            let of_child = child.memory();
            Some(match sum {
                None => of_child,
                Some(sum) => sum.and(of_child),
            })
        };
        self.children.iter().fold(None, add).unwrap_or(Memory::Unknown)
    }
}

impl Memory {
    fn and(self, other: Self) -> Self {
        use Memory::{AtLeast, Known, Unknown};
        match (self, other) {
            (Unknown, Unknown) => Unknown,
            (Known(a), Known(b)) => Known(a.saturating_add(b)),
            (Unknown, Known(a) | AtLeast(a)) | (Known(a) | AtLeast(a), Unknown) => AtLeast(a),
            (AtLeast(a), Known(b) | AtLeast(b)) | (Known(a), AtLeast(b)) => {
                AtLeast(a.saturating_add(b))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::Standing;
    use ebb_policy::snapshot::WorkloadKey;

    fn line(name: &str, kind: WorkloadKind, cgroup: Option<&str>, memory: Option<u64>) -> Line {
        Line {
            key: WorkloadKey { name: name.to_owned(), ..WorkloadKey::default() },
            kind,
            cgroup: cgroup.map(str::to_owned),
            memory,
            growth: None,
            stall: None,
            priority: None,
            standing: Standing::Candidate,
            place: None,
            reason: String::new(),
            keys: String::new(),
        }
    }

    fn shown(lines: &[Line]) -> Vec<(usize, String, Memory)> {
        let lines: Vec<&Line> = lines.iter().collect();
        tree(&lines).into_iter().map(|row| (row.depth, row.label, row.memory)).collect()
    }

    #[test]
    fn workloads_stand_below_their_cgroups_whose_memory_is_the_sum() {
        let cgroup = |name: &str, memory| line(name, WorkloadKind::Cgroup, Some(name), memory);
        let pod = |name: &str, at, memory| line(name, WorkloadKind::Pod, at, memory);
        let lines = [
            cgroup("/apps/hog", Some(9)),
            cgroup("/apps/web/front", Some(2)),
            pod("shop/web-1", Some("/kubepods/burstable/pod1"), Some(5)),
            pod("shop/web-2", Some("/kubepods/burstable/pod2"), None),
            pod("shop/lost", None, Some(1)),
        ];
        let row = |depth, label: &str, memory| (depth, label.to_owned(), memory);
        assert_eq!(
            shown(&lines),
            [
                row(0, "apps", Memory::Known(11)),
                row(1, "hog", Memory::Known(9)),
                row(1, "web/front", Memory::Known(2)),
                row(0, "kubepods/burstable", Memory::AtLeast(5)),
                row(1, "shop/web-1", Memory::Known(5)),
                row(1, "shop/web-2", Memory::Unknown),
                row(0, "(cgroup unknown)", Memory::Known(1)),
                row(1, "shop/lost", Memory::Known(1)),
            ]
        );
    }

    #[test]
    fn a_path_of_thousands_of_cgroups_is_one_row() {
        let name = "/x".repeat(2000);
        let rows = shown(&[line(&name, WorkloadKind::Cgroup, Some(&name), Some(1))]);
        assert_eq!(rows.len(), 1);
    }
}
