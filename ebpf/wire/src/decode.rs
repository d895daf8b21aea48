//! Bytes to records. Total: any input gives a record or a [`DecodeError`], never a panic.
use crate::record::{
    Cgroup, CgroupNamed, Exit, Header, KswapdWake, MemoryEvent, OomKill, change, kind, oom_limit,
    which,
};
use core::fmt;
use zerocopy::FromBytes;

/// One record, of whichever kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "a record is converted at once and never kept; no_std has no box"
)]
pub enum Record {
    /// A process has ended.
    Exit(Exit),
    /// The kernel's OOM killer has chosen a victim.
    OomKill(OomKill),
    /// A counter in a cgroup's `memory.events` has changed.
    MemoryEvent(MemoryEvent),
    /// Something has happened to a cgroup.
    Cgroup(Cgroup),
    /// The same, with its path.
    CgroupNamed(CgroupNamed),
    /// kswapd was woken.
    KswapdWake(KswapdWake),
}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Too short for a header.
    Short {
        /// Bytes given.
        len: usize,
    },
    /// No record is of this kind.
    Kind {
        /// What the header says.
        kind: u16,
    },
    /// The length is not that of the kind, or the header contradicts it.
    Length {
        /// What the header says.
        kind: u16,
        /// Bytes given.
        len: usize,
        /// What the header says.
        claimed: u16,
    },
    /// A field holds a number that means nothing.
    Value {
        /// What the header says.
        kind: u16,
        /// Name of the field.
        field: &'static str,
        /// What it holds.
        value: u32,
    },
}

/// Read one record from exactly the bytes that the ring delivered for it.
///
/// # Errors
/// Says what is wrong with the first thing that is wrong.
pub fn decode(bytes: &[u8]) -> Result<Record, DecodeError> {
    let Ok((header, _)) = Header::read_from_prefix(bytes) else {
        return Err(DecodeError::Short { len: bytes.len() });
    };
    let Header { kind, len: claimed, .. } = header;
    if usize::from(claimed) != bytes.len() {
        return Err(DecodeError::Length { kind, len: bytes.len(), claimed });
    }
    match kind {
        kind::EXIT => exactly(header, bytes).map(Record::Exit),
        kind::OOM_KILL => {
            let record: OomKill = exactly(header, bytes)?;
            known(kind, "limit", record.limit, oom_limit::UNKNOWN..=oom_limit::CGROUP_V1)?;
            Ok(Record::OomKill(record))
        }
        kind::MEMORY_EVENT => {
            let record: MemoryEvent = exactly(header, bytes)?;
            known(kind, "which", record.which, which::UNKNOWN..=which::SOCK_THROTTLED)?;
            Ok(Record::MemoryEvent(record))
        }
        kind::CGROUP => {
            let record: Cgroup = exactly(header, bytes)?;
            known(kind, "change", record.change, change::CREATED..=change::EMPTIED)?;
            Ok(Record::Cgroup(record))
        }
        kind::CGROUP_NAMED => {
            let record: CgroupNamed = exactly(header, bytes)?;
            known(kind, "change", record.what.change, change::CREATED..=change::EMPTIED)?;
            Ok(Record::CgroupNamed(record))
        }
        kind::KSWAPD_WAKE => exactly(header, bytes).map(Record::KswapdWake),
        _ => Err(DecodeError::Kind { kind }),
    }
}

fn exactly<T: FromBytes>(header: Header, bytes: &[u8]) -> Result<T, DecodeError> {
    T::read_from_bytes(bytes).map_err(|_| DecodeError::Length {
        kind: header.kind,
        len: bytes.len(),
        claimed: header.len,
    })
}

fn known(
    kind: u16,
    field: &'static str,
    value: u32,
    range: core::ops::RangeInclusive<u32>,
) -> Result<(), DecodeError> {
    if range.contains(&value) { Ok(()) } else { Err(DecodeError::Value { kind, field, value }) }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { len } => write!(f, "{len} bytes are too few for a record's header"),
            Self::Kind { kind } => write!(f, "no record is of kind {kind}"),
            Self::Length { kind, len, claimed } => {
                write!(f, "a record of kind {kind} that claims {claimed} bytes has {len}")
            }
            Self::Value { kind, field, value } => {
                write!(f, "a record of kind {kind} has {value} in `{field}`, which means nothing")
            }
        }
    }
}

impl core::error::Error for DecodeError {}
