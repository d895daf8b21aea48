//! A KubeletConfiguration as it is: ebb takes the fields on eviction, garbage collection and cgroups and names the rest.
use super::{
    Config, ConfigErrors, Mistake, Mode,
    cgroups::{self, CgroupsDraft},
    defaults::hard_memory,
    draft::Draft,
    eviction,
    meant::placed,
    section::{Mistakes, Section},
    source::tree,
    tree::{Node, Placed},
};
use ebb_policy::cgroups::GATES;
use ebb_policy::limits::{ConfigError, Limits, RawEviction, duration};

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const KIND: &str = "KubeletConfiguration";

pub(super) fn parse(draft: Draft, text: &str) -> Result<Config, ConfigErrors> {
    let root = tree(text)?;
    let mistakes = Mistakes::default();
    let mut top = Section::top(&root, &mistakes);
    expect(&mut top, &root, "apiVersion", API_VERSION);
    expect(&mut top, &root, "kind", KIND);
    let mut eviction = eviction::read(&mut top);
    zero_is_absent(&mut eviction.eviction_pressure_transition_period);
    zero_is_absent(&mut eviction.image_minimum_gc_age);
    let draft = Draft { mode: Mode::Kubernetes, ..draft };
    eviction.options = Some(draft.defaults());
    let mut raw = cgroups::read(&mut top);
    raw.eviction_hard_memory = hard_memory(&eviction, Mode::Kubernetes);
    raw.other_gates = true;
    let gates = raw.feature_gates.keys().filter(|gate| !GATES.contains(&gate.as_str()));
    let gates: Vec<String> = gates.map(|gate| format!("featureGates.{gate}")).collect();
    let (mut unused, mut slips) = (gates, Vec::new());
    for (key, place) in top.unknown() {
        match top.nearest(key) {
            // A field that the kubelet does not know either is more likely a slip than a field that ebb does not use.
            Some(known) if strsim::damerau_levenshtein(key, known) <= 2 => {
                slips.push(format!("{}: {key}: unknown field; did you mean {known}?", place.line));
            }
            _ => unused.push(key.clone()),
        }
    }
    unused.sort();
    let cgroups = CgroupsDraft::of(raw);
    Draft { unused, slips, cgroups, ..draft }.finish(eviction, &root, mistakes)
}

/// The thresholds alone of a KubeletConfiguration; what ebb would refuse elsewhere in it is not asked for.
pub(super) fn limits(text: &str) -> Result<Limits, ConfigErrors> {
    let root = tree(text)?;
    let mistakes = Mistakes::default();
    let mut top = Section::top(&root, &mistakes);
    expect(&mut top, &root, "apiVersion", API_VERSION);
    expect(&mut top, &root, "kind", KIND);
    let eviction = RawEviction {
        eviction_hard: top.text_map("evictionHard"),
        eviction_soft: top.text_map("evictionSoft"),
        eviction_soft_grace_period: top.text_map("evictionSoftGracePeriod"),
        merge_default_eviction_settings: top.flag("mergeDefaultEvictionSettings"),
        ..RawEviction::default()
    };
    let limits = Limits::new(&eviction);
    let mut mistakes = mistakes.into_inner();
    match limits {
        Ok(limits) if mistakes.is_empty() => Ok(limits),
        limits => {
            let errors = limits.err().unwrap_or_default();
            mistakes.extend(errors.into_iter().map(|error| placed(&root, error)));
            mistakes.sort();
            Err(ConfigErrors { file: None, mistakes })
        }
    }
}

/// Refuses a KubeletConfiguration where ebb's own file belongs: one mistake that says what to do, rather than one for each of its fields.
pub(super) fn refuse(root: &Placed) -> Result<(), ConfigErrors> {
    let Node::Map(entries) = &root.node else { return Ok(()) };
    let kind = entries.iter().find(|(key, _)| key == "kind").map(|(_, place)| place);
    let Some(place) = kind.filter(|place| place.node == Node::Text(KIND.to_owned())) else {
        return Ok(());
    };
    let error = ConfigError {
        key: "kind".to_owned(),
        value: Some(KIND.to_owned()),
        problem: "this is a KubeletConfiguration, not ebb's own file".to_owned(),
        fix: "use --kubelet-config".to_owned(),
    };
    let line = (place.line > 0).then_some(place.line);
    Err(ConfigErrors { file: None, mistakes: vec![Mistake { line, error }] })
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
            format!("write `{key}: {expected}`, or use --config for ebb's own file"),
        );
    }
}
