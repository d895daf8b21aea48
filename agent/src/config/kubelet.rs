//! A KubeletConfiguration as it is: ebb takes the fields on eviction, garbage collection and cgroups and names the rest.
use super::{
    CgroupsDraft, Config, ConfigErrors, Draft, Mode, cgroups, eviction, hard_memory,
    section::{Mistakes, Section},
    tree,
    tree::Placed,
};
use ebb_policy::limits::{Options, duration};

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const KIND: &str = "KubeletConfiguration";
/// Feature gates on which something here depends.
const GATES: [&str; 2] = ["MemoryQoS", "PodLevelResources"];

pub(super) fn parse(text: &str) -> Result<Config, ConfigErrors> {
    let root = tree(text)?;
    let mistakes = Mistakes::default();
    let mut top = Section::top(&root, &mistakes);
    expect(&mut top, &root, "apiVersion", API_VERSION);
    expect(&mut top, &root, "kind", KIND);
    let mut eviction = eviction::read(&mut top);
    zero_is_absent(&mut eviction.eviction_pressure_transition_period);
    zero_is_absent(&mut eviction.image_minimum_gc_age);
    eviction.options = Some(Options::kubelet());
    let mut raw = cgroups::read(&mut top);
    raw.eviction_hard_memory = hard_memory(&eviction, Mode::Kubernetes);
    let gates = raw.feature_gates.keys().filter(|gate| !GATES.contains(&gate.as_str()));
    let gates: Vec<String> = gates.map(|gate| format!("featureGates.{gate}")).collect();
    let unused = top.unknown().map(|(key, _)| match top.nearest(key) {
        // A field that the kubelet does not know either is more likely a slip than a field that ebb does not use.
        Some(known) if strsim::damerau_levenshtein(key, known) <= 2 => {
            format!("{key} (did you mean {known}?)")
        }
        _ => key.clone(),
    });
    let mut unused: Vec<String> = unused.chain(gates).collect();
    unused.sort();
    let cgroups = CgroupsDraft::of(raw);
    let draft = Draft { mode: Mode::Kubernetes, unused, cgroups, ..Draft::default() };
    draft.finish(eviction, &root, mistakes)
}

/// In a KubeletConfiguration a duration of zero stands for the default; ebb's own file means what it says.
fn zero_is_absent(duration: &mut Option<String>) {
    duration.take_if(|text| duration::parse_nanos(text) == Ok(0));
}

fn expect(top: &mut Section<'_>, root: &Placed, key: &'static str, expected: &str) {
    let place = top.value(key).unwrap_or(root);
    if top.text(key).as_deref() != Some(expected) {
        top.refuse(
            key,
            place,
            "this is not a KubeletConfiguration of v1beta1",
            format!("write `{key}: {expected}`"),
        );
    }
}
