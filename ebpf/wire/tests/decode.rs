//! `decode` takes anything: what a kernel program wrote comes back, everything else is an error and never a panic.
use ebb_wire::{
    COMM_LEN, Cgroup, CgroupNamed, DecodeError, Exit, Header, KswapdWake, MemoryEvent, OomKill,
    PATH_LEN, Record, change, decode, exit_flags, kind, oom_limit, which,
};
use proptest::prelude::*;
use zerocopy::IntoBytes;

fn header(kind: u16, len: usize) -> Header {
    Header { kind, len: u16::try_from(len).expect("records are short"), cpu: 3, ts_ns: 42 }
}

/// One record of every kind, beside the bytes that a kernel program would have written for it.
fn one_of_each() -> Vec<(Record, Vec<u8>)> {
    let exit = Exit {
        header: header(kind::EXIT, size_of::<Exit>()),
        cgroup: 7,
        start_ns: 40,
        pid: 100,
        ppid: 1,
        status: 9,
        flags: exit_flags::STATUS,
        comm: [b'x'; COMM_LEN],
    };
    let oom = OomKill {
        header: header(kind::OOM_KILL, size_of::<OomKill>()),
        victim_cgroup: 7,
        limit_cgroup: 5,
        start_ns: 40,
        pid: 100,
        oom_score_adj: -998,
        limit: oom_limit::CGROUP,
        reserved: 0,
        comm: [0; COMM_LEN],
    };
    let memory = MemoryEvent {
        header: header(kind::MEMORY_EVENT, size_of::<MemoryEvent>()),
        cgroup: 7,
        which: which::SOCK_THROTTLED,
        folded: 12,
    };
    let cgroup = Cgroup {
        header: header(kind::CGROUP, size_of::<Cgroup>()),
        cgroup: 7,
        parent: 1,
        level: 1,
        change: change::EMPTIED,
    };
    let named = CgroupNamed {
        what: Cgroup {
            header: header(kind::CGROUP_NAMED, size_of::<CgroupNamed>()),
            change: change::CREATED,
            ..cgroup
        },
        path: [b'/'; PATH_LEN],
    };
    let wake = KswapdWake {
        header: header(kind::KSWAPD_WAKE, size_of::<KswapdWake>()),
        node: 1,
        folded: 2,
    };
    vec![
        (Record::Exit(exit), exit.as_bytes().to_vec()),
        (Record::OomKill(oom), oom.as_bytes().to_vec()),
        (Record::MemoryEvent(memory), memory.as_bytes().to_vec()),
        (Record::Cgroup(cgroup), cgroup.as_bytes().to_vec()),
        (Record::CgroupNamed(named), named.as_bytes().to_vec()),
        (Record::KswapdWake(wake), wake.as_bytes().to_vec()),
    ]
}

#[test]
fn every_kind_survives_the_ring() {
    let records = one_of_each();
    assert_eq!(records.len(), kind::COUNT as usize - 1, "a kind has no example here");
    for (record, bytes) in records {
        assert_eq!(decode(&bytes), Ok(record));
    }
}

#[test]
fn a_record_of_the_wrong_length_is_refused_whatever_its_header_claims() {
    for (_, bytes) in one_of_each() {
        for len in 0..bytes.len() {
            let mut cut = bytes[..len].to_vec();
            assert!(decode(&cut).is_err(), "{len} bytes of {}", bytes.len());
            if let Some(claim) = cut.get_mut(2..4) {
                claim.copy_from_slice(&u16::try_from(len).unwrap().to_ne_bytes());
                assert!(decode(&cut).is_err(), "{len} bytes of {} that claim {len}", bytes.len());
            }
        }
        let mut long = bytes.clone();
        long.push(0);
        assert!(decode(&long).is_err());
    }
}

#[test]
fn a_number_that_means_nothing_is_refused_by_name() {
    let (_, mut bytes) = one_of_each().swap_remove(3);
    let at = bytes.len() - 4;
    bytes[at..].copy_from_slice(&99u32.to_ne_bytes());
    assert_eq!(
        decode(&bytes),
        Err(DecodeError::Value { kind: kind::CGROUP, field: "change", value: 99 })
    );
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
        let _ = decode(&bytes);
    }

    #[test]
    fn damage_to_the_kind_or_length_is_always_noticed(
        which in 0..6usize,
        at in 0..4usize,
        bit in 0..8u32,
    ) {
        let (_, mut bytes) = one_of_each().swap_remove(which);
        bytes[at] ^= 1 << bit;
        prop_assert!(decode(&bytes).is_err());
    }

    #[test]
    fn damage_elsewhere_is_an_error_or_another_record(
        which in 0..6usize,
        at in 4..600usize,
        bit in 0..8u32,
    ) {
        let (record, mut bytes) = one_of_each().swap_remove(which);
        let at = 4 + at % (bytes.len() - 4);
        bytes[at] ^= 1 << bit;
        prop_assert_ne!(decode(&bytes), Ok(record));
    }
}
