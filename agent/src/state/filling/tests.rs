//! Who fills a filesystem, told by what grows and what is written between two readings.
use super::*;
use crate::sense::disk::Places;
use ebb_policy::Time;
use ebb_policy::snapshot::{FsFacts, FsUsage, Stats, Workload, WorkloadKey};

const MIB: u64 = 1 << 20;
const DISK: u64 = 0x800;

fn fs(device: u64, available: u64) -> FsReading {
    FsReading { device, available, capacity: 1 << 40, inodes_free: Some(1000), inodes: Some(2000) }
}

fn ms(ms: u64) -> Boot {
    Boot(ms * 1_000_000)
}

fn sizes(bytes: u64, at: Boot) -> PodSizes {
    let usage = FsUsage { used_bytes: Some(bytes), inodes_used: Some(1) };
    PodSizes {
        logs: [("main".to_owned(), Figure { usage, at, is_whole: true })].into(),
        ..PodSizes::default()
    }
}

/// What one moment shows: bytes left of the node's and of the images' filesystem, and of one pod what its logs take up, what it has written to the device, and what is dirty.
struct Moment {
    at: Boot,
    left: [u64; 2],
    logs: u64,
    written: Option<u64>,
    dirty: Option<u64>,
}

fn seen(moments: &[Moment], devices: [u64; 2]) -> Filling {
    let mut filling = Filling::default();
    for Moment { at, left, logs, written, dirty } in moments {
        let [node, images] = [fs(devices[0], left[0]), fs(devices[1], left[1])];
        let reading = DiskReading {
            at: *at,
            places: Places::default(),
            node: Ok(node.clone()),
            images: Some(Ok(images.clone())),
            layers: None,
            pods: Some([("u1".to_owned(), sizes(*logs, *at))].into()),
        };
        let devices = written.map(|bytes| [(DISK, bytes)].into());
        let writes = Writes { devices, dirty: *dirty };
        let written = [(7, (Arc::from("u1"), writes))].into();
        filling.observe(&reading, [Some(&node), Some(&images), Some(&images)], Some, written);
    }
    filling
}

fn pod_in(filling: &Filling, at: Boot) -> (Option<FsFall>, Option<DiskGrowth>) {
    let clock = Clock::of_process();
    let mut snapshot = Snapshot::at(Time(0));
    let observed_at = Some(clock.time(at));
    snapshot.node.node_fs = Some(FsFacts { observed_at, ..FsFacts::default() });
    snapshot.workloads.push(Workload {
        key: WorkloadKey { uid: Some("u1".into()), ..WorkloadKey::default() },
        stats: Some(Stats::default()),
        ..Workload::default()
    });
    filling.fill(&mut snapshot, &clock);
    let stats = snapshot.workloads.remove(0).stats.unwrap();
    (snapshot.node.node_fs.unwrap().fall, stats.disk_growth)
}

#[test]
fn what_is_dirty_counts_until_it_is_written_back_and_once_only() {
    let moment = |at, left: u64, written, dirty| Moment {
        at: ms(at),
        left: [left * MIB, left * MIB],
        logs: 0,
        written: Some(written * MIB),
        dirty: Some(dirty * MIB),
    };
    // 100 MiB that were dirty before are written back meanwhile: only what is new counts.
    let filling = seen(&[moment(0, 900, 5, 100), moment(200, 860, 105, 40)], [DISK, DISK]);
    let (fall, growth) = pod_in(&filling, ms(200));
    let fall = fall.unwrap();
    assert_eq!((fall.over, fall.bytes), (Millis(200), Some(40 * MIB)));
    assert_eq!(fall.bytes_per_second, Some(200 * MIB));
    assert_eq!(growth.unwrap().node_fs.unwrap().written, Some(40 * MIB));
}

#[test]
fn logs_count_on_the_nodes_filesystem_alone_and_without_any_cgroup() {
    let moment = |at, left: u64, logs| Moment {
        at: ms(at),
        left: [left * MIB, 500 * MIB],
        logs: logs * MIB,
        written: None,
        dirty: None,
    };
    let filling = seen(&[moment(0, 900, 1), moment(1000, 870, 31)], [DISK, DISK + 1]);
    let growth = pod_in(&filling, ms(1000)).1.unwrap();
    assert_eq!(growth.node_fs.unwrap().grown, Some(30 * MIB));
    assert_eq!((growth.node_fs.unwrap().written, growth.image_fs), (None, None));
}

#[test]
fn samples_are_compared_over_two_seconds_and_the_rate_is_of_the_last_half() {
    let moment = |at: u64| Moment {
        at: ms(at),
        // 100 MiB a second for three seconds, then nothing.
        left: [1000 * MIB - at.min(3000) * MIB / 10, MIB],
        logs: 0,
        written: None,
        dirty: None,
    };
    let until =
        |end: u64| seen(&(0..=end / 100).map(|n| moment(n * 100)).collect::<Vec<_>>(), [DISK, 9]);
    let (fall, _) = pod_in(&until(3000), ms(3000));
    assert_eq!(fall.unwrap().over, Millis(2000));
    assert_eq!(fall.unwrap().bytes, Some(200 * MIB));
    assert_eq!(until(3000).time_left(Signal::NodeFsAvailable), Some(Duration::from_secs(7)));
    let (fall, _) = pod_in(&until(4000), ms(4000));
    assert_eq!(fall.unwrap().bytes, Some(100 * MIB));
    assert_eq!(fall.unwrap().bytes_per_second, Some(0));
    assert_eq!(until(4000).time_left(Signal::NodeFsAvailable), None);
}

#[test]
fn two_looks_at_almost_the_same_moment_give_no_rate() {
    let moment = |at, left: u64| Moment {
        at: ms(at),
        left: [left * MIB, left * MIB],
        logs: 0,
        written: None,
        dirty: None,
    };
    let filling = seen(&[moment(0, 900), moment(3, 890)], [DISK, DISK]);
    assert_eq!(pod_in(&filling, ms(3)).0.unwrap().bytes_per_second, None);
    assert_eq!(filling.time_left(Signal::NodeFsAvailable), None);
}

#[test]
fn one_look_and_one_of_long_ago_tell_of_no_growth() {
    let moment =
        |at| Moment { at: ms(at), left: [MIB, MIB], logs: 0, written: Some(0), dirty: Some(0) };
    assert_eq!(pod_in(&seen(&[moment(0)], [DISK, DISK]), ms(0)), (None, None));
    let late = seen(&[moment(0), moment(60_000)], [DISK, DISK]);
    assert_eq!(pod_in(&late, ms(60_000)), (None, None));
}
