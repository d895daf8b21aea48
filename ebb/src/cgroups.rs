//! `ebb cgroups`: the tree that Kubernetes' rules demand, and this node held against it.

use super::configured::ConfigArgs;
use super::node::NodeArgs;
use super::runtime::failure;
use super::{Failure, event_loop};
use anyhow::{Context as _, anyhow};
use ebb_agent::cgroups::beneath::Beneath;
use ebb_agent::cgroups::chain;
use ebb_agent::cgroups::detect::of_tree;
use ebb_agent::cgroups::enforce::{Enforcer, Scope, check};
use ebb_agent::cgroups::live;
use ebb_agent::cgroups::node;
use ebb_agent::cgroups::orphans::Ground;

use ebb_agent::cgroups::systemd::Manager;
use ebb_agent::cgroups::write::Writer;
use ebb_agent::clock::Clock;
use ebb_agent::config::{Beside, Config};
use ebb_agent::pods::sources::{Sources, of_runtime_alone};
use ebb_agent::sense::Roots;
use ebb_agent::sense::host::{CgroupLayout, hierarchies};
use ebb_agent::sense::manifests::Manifests;
use ebb_agent::sense::runtime::{Inventory, Reader};
use ebb_cri::{Deadlines, Endpoint, Runtime};
use ebb_journal::cgroups::{Dying, Written};
use ebb_journal::text::cgroups as shown;
use ebb_policy::cgroups::compare::{Difference, Live};
use ebb_policy::cgroups::cpu::Curve;
use ebb_policy::cgroups::orphans::{Action, Orphan};
use ebb_policy::cgroups::{Driver, Node, Options, Plan, PodTree, plan};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Arguments of `ebb cgroups`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print the tree that the rules demand: each cgroup with its values and the rule behind each.
    Plan(ReadArgs),
    /// Print where this node differs from it; exit code 4 when it does.
    Audit(ReadArgs),
    /// Write what differs, verify it, and say what became of it; exit code 4 when something still differs.
    Enforce(EnforceArgs),
    /// Print this node's tree of pods with what each cgroup is given, differences marked.
    Tree(ReadArgs),
}

/// What a plan is made of.
#[derive(Debug, clap::Args)]
struct Inputs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Pod manifests: a file or a directory of YAML or JSON, or `-` for standard input; Pods, Lists, several documents.
    #[arg(long, value_name = "DIR|FILE|-")]
    pods: Option<PathBuf>,
    /// The container runtime's CRI socket: its pods are planned for as well, as far as it tells what they asked for.
    #[arg(long, value_name = "SOCKET")]
    cri: Option<Endpoint>,
    /// Facts about the node (docs/schema/cgroup-node.json) or a Kubernetes Node; this machine when not given.
    #[arg(long, value_name = "FILE")]
    node: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct ReadArgs {
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    roots: NodeArgs,
    /// Form of the answer.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Debug, clap::Args)]
struct EnforceArgs {
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    roots: NodeArgs,
    /// Nobody else writes: classes and containers are ebb's too (`ebb.cgroups.beside: nobody`).
    #[arg(long)]
    alone: bool,
    /// Make cgroups of pods that are missing (`ebb.cgroups.create`).
    #[arg(long)]
    create: bool,
    /// Kill what runs in pod cgroups that no pod belongs to, and remove them; needs manifests, because a runtime does not tell of pods that have not begun.
    #[arg(long, requires = "pods")]
    remove_orphaned_pods: bool,
    /// Ask the kernel to take back memory that removed cgroups of pods still hold.
    #[arg(long)]
    reclaim_dying: bool,
    /// Form of the answer.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Form of the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// For people.
    #[default]
    Text,
    /// One JSON object; the schemas are in docs/schema.
    Json,
    /// The tree, indented, differences marked.
    Tree,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        Command::Plan(args) => print_plan(&args),
        Command::Audit(args) => audit(&args, args.output),
        Command::Enforce(args) => enforce(&args),
        Command::Tree(args) => {
            let output = if args.output == Output::Text { Output::Tree } else { args.output };
            audit(&args, output)
        }
    }
}

/// A plan with what it was made of.
struct Made {
    config: Config,
    node: Node,
    sources: Sources,
    /// UIDs of pods that only the runtime knows.
    of_runtime: BTreeSet<String>,
    plan: Plan,
}

impl Inputs {
    /// `tree` says that there is a tree that the plan is for: a plan from files needs none.
    fn make(&self, roots: &Roots, tree: bool) -> Result<Made, Failure> {
        let mut config: Config = self.config.load()?;
        let tree = tree.then(|| Beneath::new(&roots.cgroup));
        let found = tree.map(|tree| of_tree(&mut config.cgroups, &tree)).transpose();
        let found = found.map_err(Failure::Input)?;
        if self.pods.is_none() && self.cri.is_none() {
            let here = found.as_ref().map_or("", |found| match found.is_kubernetes {
                true => "",
                false => {
                    "; and there is no Kubernetes here: no cgroup of pods is below the cgroup mount"
                }
            });
            return Err(Failure::Input(anyhow!(
                "no source of pods: name manifests with --pods DIR|FILE (- is standard input), or the container runtime with --cri SOCKET, such as --cri /run/containerd/containerd.sock{here}"
            )));
        }
        let node = match &self.node {
            Some(file) => node::from_file(file),
            None => node::of_this_machine(roots).context("this machine"),
        };
        let node = node.map_err(Failure::Input)?;
        let read = |path: &PathBuf| {
            if path.as_os_str() == "-" {
                let text = standard_input()?;
                let mut manifests = Manifests::default();
                manifests.add(text, node.name.as_deref()).context("standard input")?;
                return Ok(manifests);
            }
            Manifests::read(path, node.name.as_deref())
        };
        let manifests = self.pods.as_ref().map(read).transpose().map_err(Failure::Input)?;
        let notes =
            manifests.iter().flat_map(|manifests| manifests.notes.clone()).collect::<Vec<_>>();
        let listed = self.cri.clone().map(listed).transpose()?;
        let sources = Sources::now(manifests, listed.map(Arc::new));
        let pods = pod_tree(&config).map(|tree| sources.pods(&tree)).unwrap_or_default();
        let mut plan = plan(&config.cgroups.options, &node, &pods).map_err(|errors| {
            let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
            Failure::Input(anyhow!(lines.join("\n")))
        })?;
        plan.notes.extend(notes);
        plan.notes.extend(found.into_iter().flat_map(|found| found.notes));
        let of_runtime = of_runtime_alone(&pods);
        Ok(Made { config, node, sources, of_runtime, plan })
    }
}

/// What is on standard input, read once: later looks find it again.
fn standard_input() -> anyhow::Result<&'static str> {
    static TEXT: OnceLock<String> = OnceLock::new();
    if let Some(text) = TEXT.get() {
        return Ok(text);
    }
    let text =
        std::io::read_to_string(std::io::stdin()).context("standard input: cannot be read")?;
    Ok(TEXT.get_or_init(|| text))
}

/// What a container runtime lists now.
fn listed(endpoint: Endpoint) -> Result<Inventory, Failure> {
    event_loop()?.block_on(async {
        let (runtime, _events) = Runtime::start(endpoint, Deadlines::default());
        let mut reader = Reader::new(runtime, Clock::of_process());
        reader.inventory(false).await.map_err(failure)
    })
}

fn print_plan(args: &ReadArgs) -> Result<(), Failure> {
    // A plan from files needs nothing of this machine.
    let roots = match &args.inputs.node {
        Some(_) => Roots::default(),
        None => args.roots.find().map_err(Failure::Input)?.0,
    };
    let Made { plan, .. } = args.inputs.make(&roots, args.inputs.node.is_none())?;
    say(&match args.output {
        Output::Json => json(&plan)?,
        Output::Text => shown::plan(&plan),
        Output::Tree => shown::tree(&plan, None, &[], &[]),
    })
}

/// What `ebb cgroups audit` prints as JSON.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Audit<'a> {
    /// Version of this form.
    schema_version: u32,
    /// How cgroups are laid out here.
    layout: &'a CgroupLayout,
    /// Cgroups of the plan that are there.
    found: usize,
    /// Files read.
    reads: u64,
    /// Every difference.
    differences: &'a [Difference],
    /// Pod cgroups that no pod belongs to.
    orphaned_pods: &'a [Orphan],
    /// Removed cgroups that still hold memory.
    dying: &'a [Dying],
    /// What was left out, and why.
    notes: &'a [String],
}

/// What `ebb cgroups enforce` prints as JSON.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Enforced<'a> {
    /// Version of this form.
    schema_version: u32,
    /// What was written, and read back.
    written: &'a [Written],
    /// Cgroups that were made.
    created: &'a [String],
    /// Differences that are left.
    remaining: &'a [Difference],
    /// Paths of orphaned pod cgroups that were removed, or had their CPU reduced.
    cleaned_up: &'a [String],
    /// Bytes that removed cgroups held and no longer do.
    reclaimed: u64,
    /// Pod cgroups that no pod belongs to.
    orphaned_pods: &'a [Orphan],
    /// What could not be done, and why.
    errors: &'a [String],
    /// What was left out, and why.
    notes: &'a [String],
}

fn audit(args: &ReadArgs, output: Output) -> Result<(), Failure> {
    let (roots, layout) = args.roots.find().map_err(Failure::Input)?;
    let Made { config, mut plan, node, sources, .. } = args.inputs.make(&roots, true)?;
    let ground = ground(&config, &roots);
    let (orphaned_pods, dying) = match pod_tree(&config) {
        Some(tree) if layout.unified().is_some() => {
            let beside = config.cgroups.beside;
            let orphaned = look_for_orphans(&ground, &tree, &sources, beside, &mut plan.notes);
            (orphaned, ground.dying(&tree))
        }
        _ => (Vec::new(), Vec::new()),
    };
    let mut reader = live::Reader::new(&roots, curves(&config));
    let live: Live = reader.read(&plan);
    let differences = reader.differences(&plan, &live, &node);
    say(&match output {
        Output::Json => json(&Audit {
            schema_version: ebb_policy::cgroups::plan::SCHEMA_VERSION,
            layout: &layout,
            found: live.len(),
            reads: reader.reads(),
            differences: &differences,
            orphaned_pods: &orphaned_pods,
            dying: &dying,
            notes: &plan.notes,
        })?,
        Output::Text => shown::audit(&plan, &differences, &orphaned_pods, &dying),
        Output::Tree => shown::tree(&plan, Some(&live), &differences, &orphaned_pods),
    })?;
    let is_clean = differences.is_empty() && orphaned_pods.is_empty();
    if is_clean { Ok(()) } else { Err(Failure::Differs) }
}

fn enforce(args: &EnforceArgs) -> Result<(), Failure> {
    let (roots, layout) = args.roots.find().map_err(Failure::Input)?;
    if layout.unified().is_none() {
        return Err(Failure::Host(anyhow!(
            "enforcing cgroups needs the unified hierarchy (cgroup v2 with the memory controller): {}",
            hierarchies(&roots.proc)
        )));
    }
    let Made { config, mut plan, node, sources, of_runtime } = args.inputs.make(&roots, true)?;
    check(&plan, &roots.cgroup).map_err(|problem| Failure::Input(anyhow!(problem)))?;
    let beside = if args.alone { Beside::Nobody } else { config.cgroups.beside };
    let mut errors = Vec::new();
    let manager = (plan.driver == Driver::Systemd).then(Manager::connect);
    let manager = manager.and_then(|connected| connected.map_err(|error| errors.push(error)).ok());
    let deadline = Duration::from_millis(config.cgroups.write_deadline.0);
    let mut enforcer = Enforcer {
        reader: live::Reader::new(&roots, curves(&config)),
        writer: Writer::new(&roots.cgroup, node.page_size(), deadline),
        scope: Scope {
            beside,
            create: args.create || config.cgroups.create,
            resizing: sources.resizing(),
            of_runtime,
            ..Scope::default()
        },
        manager,
    };
    let round = enforcer.enforce(&plan, &node);
    errors.extend(round.failed.iter().map(chain));
    errors.extend(round.refused.iter().cloned());
    let live = enforcer.reader.read(&plan);
    let left = enforcer.reader.differences(&plan, &live, &node);
    errors.extend(left.iter().filter_map(|difference| enforcer.out_of_reach(difference)));
    let (mut cleaned_up, mut reclaimed) = (Vec::new(), 0);
    let ground = ground(&config, &roots);
    let mut orphaned_pods = Vec::new();
    if let Some(tree) = pod_tree(&config) {
        if args.remove_orphaned_pods {
            remove_orphaned_pods(
                args,
                &config,
                &roots,
                &tree,
                &sources,
                &mut cleaned_up,
                &mut errors,
            )?;
        }
        if args.reclaim_dying {
            for dying in ground.dying(&tree) {
                match ground.reclaim(&enforcer.writer, &dying) {
                    Ok(bytes) => reclaimed += bytes,
                    Err(error) => errors.push(chain(&error)),
                }
            }
        }
        // With the option, what is not cleaned up is an error by now.
        if !args.remove_orphaned_pods {
            orphaned_pods = look_for_orphans(&ground, &tree, &sources, beside, &mut plan.notes);
        }
    }
    say(&match args.output {
        Output::Json => json(&Enforced {
            schema_version: ebb_policy::cgroups::plan::SCHEMA_VERSION,
            written: &round.written,
            created: &round.created,
            remaining: &left,
            cleaned_up: &cleaned_up,
            reclaimed,
            orphaned_pods: &orphaned_pods,
            errors: &errors,
            notes: &plan.notes,
        })?,
        Output::Text | Output::Tree => {
            let lines = shown::round(&round.written, &round.created, &left, &errors, None);
            let cleaned_up = cleaned_up.iter().map(|path| format!("{path}: left over, dealt with"));
            let orphaned = orphaned_pods.iter().map(shown::belongs_to_nobody);
            let notes = plan.notes.iter().map(|note| format!("note: {note}"));
            let lines = lines.into_iter().chain(cleaned_up).chain(orphaned).chain(notes);
            lines.map(|line| ebb_journal::text::plain(&line).into_owned() + "\n").collect()
        }
    })?;
    let mine_left = left.iter().any(|difference| enforcer.covers(difference));
    if errors.is_empty() && !mine_left && orphaned_pods.is_empty() {
        Ok(())
    } else {
        Err(Failure::Differs)
    }
}

/// The pod cgroups that no pod belongs to; where that cannot be told although something runs in one, a note says why.
fn look_for_orphans(
    ground: &Ground,
    tree: &PodTree,
    sources: &Sources,
    beside: Beside,
    notes: &mut Vec<String>,
) -> Vec<Orphan> {
    let known = sources.known(beside);
    if let Err(why) = &known
        && ground.runs_something(tree)
    {
        notes.push(format!("pod cgroups without a pod are not looked for: {why}"));
    }
    ground.orphaned_pods(tree, known.ok().as_ref())
}

/// The curves by which shares of cgroup v1 are read as weights: of the kubelet's levels, and of containers.
fn curves(config: &Config) -> (Curve, Curve) {
    let Options { pod_curve, container_curve, .. } = config.cgroups.options;
    (pod_curve, container_curve)
}

/// Removes what was left over at two looks in a row, `ebb.cgroups.period` apart: a cgroup may be made a moment before its pod is told of.
fn remove_orphaned_pods(
    args: &EnforceArgs,
    config: &Config,
    roots: &Roots,
    tree: &PodTree,
    first: &Sources,
    cleaned_up: &mut Vec<String>,
    errors: &mut Vec<String>,
) -> Result<(), Failure> {
    let ground = ground(config, roots);
    let beside = if args.alone { Beside::Nobody } else { config.cgroups.beside };
    let look = |sources: &Sources, errors: &mut Vec<String>| match sources.known(beside) {
        Ok(_) if !sources.is_complete() => {
            let why = "the pod manifests name no pod, or one without its UID";
            errors.push(format!("no pod cgroup is removed: {why}"));
            Vec::new()
        }
        Ok(known) => ground.orphaned_pods(tree, Some(&known)),
        Err(why) => {
            errors.push(format!("no pod cgroup is removed: {why}"));
            Vec::new()
        }
    };
    let found = look(first, errors);
    for orphan in found.iter().filter(|orphan| orphan.action == Action::Skip) {
        let why = orphan.skipped.as_deref().unwrap_or_default();
        errors.push(format!("{}: skipped: something runs in it, and {why}", orphan.path));
    }
    let before: BTreeSet<String> = found
        .into_iter()
        .filter(|orphan| orphan.action != Action::Skip)
        .map(|orphan| orphan.path)
        .collect();
    if before.is_empty() {
        return Ok(());
    }
    let period = Duration::from_millis(config.cgroups.period.0);
    super::say(&format!(
        "ebb: {} pod cgroups without a pod; looking again in {} ms\n",
        before.len(),
        period.as_millis()
    ));
    std::thread::sleep(period);
    // Everything is read anew: the pod may have been told of meanwhile.
    let Made { sources, .. } = args.inputs.make(roots, true)?;
    for orphan in look(&sources, errors) {
        if orphan.action == Action::Skip || !before.contains(&orphan.path) {
            continue;
        }
        match ground.end(&orphan) {
            Ok(()) => cleaned_up.push(orphan.path),
            Err(error) => errors.push(format!("{}: {error}", orphan.path)),
        }
    }
    Ok(())
}

fn ground(config: &Config, roots: &Roots) -> Ground {
    Ground {
        root: roots.cgroup.clone(),
        proc: roots.proc.clone(),
        kubelet: config.cgroups.kubelet_root.clone(),
    }
}

fn pod_tree(config: &Config) -> Option<PodTree> {
    let options = &config.cgroups.options;
    PodTree::below(&options.root, options.driver).ok()
}

fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(value).context("cannot be written as JSON")? + "\n")
}

fn say(text: &str) -> Result<(), Failure> {
    std::io::stdout().write_all(text.as_bytes()).context("cannot write the answer")?;
    Ok(())
}
