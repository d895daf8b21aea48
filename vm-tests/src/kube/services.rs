//! The services of a cluster's node: what each is told, in which order they start, and where their logs are.
use super::NODE;
use super::api::{Api, PORT};
use crate::cgroup::Cgroup;
use crate::containerd::SOCKET;
use crate::init::SELF;
use crate::wait;
use anyhow::{Context, Result, ensure};
use ebb_vm_protocol::KUBERNETES;
use nix::mount::{MsFlags, mount};
use std::fs::{self, File};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Logs by service.
pub(super) const LOGS: &str = "/run/kubernetes/logs";
pub(super) const DIR: &str = "/run/kubernetes";
pub(crate) const KUBECONFIG: &str = "/run/kubernetes/kubeconfig";
/// Who may ask: token, name, id, group. Without a token, `kubectl` asks a person for a name.
const TOKENS: &str = "/run/kubernetes/tokens";
const KUBELET_CONFIG: &str = "/run/kubernetes/kubelet.yaml";
const LOCAL: &str = "127.0.0.1";
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// The node's own address. The guest has no network; a node may not have one of 127.0.0.0/8.
const ADDRESS: &str = "10.0.2.15";
/// Where pods find the API server. Nothing translates the addresses of Services here, so it listens there itself.
const SERVICE: (&str, u16) = ("10.96.0.1", 443);
/// What a machine with a whole control plane has on its command line.
const CONTROLLERS: &str = "guest.controllers";
/// What it takes to run a DaemonSet and a Deployment, and what Services and budgets go by. Nodes are left alone: a kubelet under emulation is late at times.
const ENABLED: &str = "daemonset,deployment,disruption,replicaset,endpoint,garbagecollector,namespace,serviceaccount,serviceaccount-token,root-ca-cert-publisher";
/// The API server makes a key pair and fills an empty store before it is ready: 20 s alone under TCG.
const STARTS_IN: Duration = Duration::from_secs(240);
/// What the kubelet and its volumes call, which busybox has.
const TOOLS: [&str; 7] = ["du", "find", "ip", "mount", "nice", "stat", "umount"];

/// etcd, API server, controllers and scheduler, with the test's own client. A cluster has them on other machines as a rule: here they get processor time before all others, and what memory they have is not reclaimed.
const CONTROL_PLANE: &str = "control-plane.slice";
/// The node's own services.
const SYSTEM: &str = "system.slice";

/// The kubelet's default.
pub(super) const MEMORY_THRESHOLD: &str = "100Mi";
/// With its threshold of memory for `THRESHOLD`. Those of disk and its rotation of logs are out of the way: filesystems are small here, and who is evicted is ebb's decision.
const KUBELET_CONFIGURATION: &str = "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
failSwapOn: false
makeIPTablesUtilChains: false
enableControllerAttachDetach: false
evictionHard: {memory.available: THRESHOLD, nodefs.available: 1Mi, imagefs.available: 1Mi}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
containerLogMaxSize: 10Gi
";

/// What a node has that a bare guest has not. Doing it again changes nothing.
pub(super) fn prepare() -> Result<()> {
    for dir in [DIR, LOGS, "/etc/cni/net.d", "/var/lib/kubelet", "/var/lib/etcd", "/var/log/pods"] {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {dir}"))?;
    }
    for tool in TOOLS {
        let path = format!("/usr/bin/{tool}");
        if fs::symlink_metadata(&path).is_err() {
            symlink("busybox", &path).with_context(|| format!("cannot link {path}"))?;
        }
    }
    // Volumes that a container mounts are seen by others, as the kubelet expects of a node.
    let shared = MsFlags::MS_REC | MsFlags::MS_SHARED;
    mount(None::<&str>, "/", None::<&str>, shared, None::<&str>).context("cannot share /")?;
    let files = [
        ("/etc/machine-id", "00000000000000000000000000000001\n"),
        // All pods are on the node's network; without a network of pods the node would not be ready.
        (
            "/etc/cni/net.d/10-none.conf",
            r#"{"cniVersion": "0.3.1", "name": "none", "type": "loopback"}"#,
        ),
    ];
    for (path, text) in files {
        fs::write(path, text).with_context(|| format!("cannot write {path}"))?;
    }
    if !fs::read_to_string("/proc/net/fib_trie").is_ok_and(|text| text.contains(ADDRESS)) {
        ip(&["link", "set", "lo", "up"])?;
        for address in [ADDRESS, SERVICE.0] {
            ip(&["address", "add", &format!("{address}/32"), "dev", "lo"])?;
        }
    }
    Ok(())
}

/// Start the kubelet anew with another threshold of memory.
pub(super) fn restart_kubelet(threshold: &str) -> Result<()> {
    Cgroup::at(&format!("{SYSTEM}/kubelet.service")).kill()?;
    start_kubelet(threshold)
}

fn start_kubelet(threshold: &str) -> Result<()> {
    let configuration = KUBELET_CONFIGURATION.replace("THRESHOLD", threshold);
    fs::write(KUBELET_CONFIG, configuration).context("cannot write the kubelet's")?;
    service(SYSTEM, "kubelet", &kubelet()).map(drop)
}

/// Whether this machine has controllers and a scheduler.
pub(super) fn has_controllers() -> bool {
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    line.split_whitespace().any(|word| word == CONTROLLERS)
}

/// Start all of them, unless they run.
pub(super) fn start(api: &Api) -> Result<()> {
    if api.is_ready() {
        return Ok(());
    }
    let control_plane = Cgroup::create(CONTROL_PLANE)?;
    control_plane.write("cpu.weight", "10000")?;
    control_plane.write("memory.min", "max")?;
    let mut etcd = service(CONTROL_PLANE, "etcd", &etcd())?;
    listens("etcd", &mut etcd, (LOCAL, 2379))?;
    fs::write(TOKENS, "guest,guest,guest,system:masters\n").context("cannot write the tokens")?;
    let mut server = service(CONTROL_PLANE, "kube-apiserver", &api_server())?;
    listens("kube-apiserver", &mut server, SERVICE)?;
    fs::write(KUBECONFIG, kubeconfig()).context("cannot write the kubeconfig")?;
    let mut proxy = service(CONTROL_PLANE, "kubectl", &proxy())?;
    listens("kubectl", &mut proxy, (LOCAL, PORT))?;
    // It must not find a server that does not know the namespace of its leases yet.
    let ready = wait::seldom(STARTS_IN, "the API server is ready", || api.is_ready());
    ready.with_context(last_words)?;
    if has_controllers() {
        service(CONTROL_PLANE, "kube-controller-manager", &controllers())?;
        service(CONTROL_PLANE, "kube-scheduler", &scheduler())?;
    }
    start_kubelet(MEMORY_THRESHOLD)
}

/// The API server's cgroup.
pub(super) fn api_server_cgroup() -> Cgroup {
    Cgroup::at(&format!("{CONTROL_PLANE}/kube-apiserver.service"))
}

/// The end of each log, for whoever reads why something failed.
pub(super) fn last_words() -> String {
    let last = |name: &str| {
        let log = fs::read_to_string(format!("{LOGS}/{name}.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines.iter().rev().take(3).rev().copied().collect::<Vec<_>>().join(" / ")
    };
    let controllers: &[&str] =
        if has_controllers() { &["kube-controller-manager", "kube-scheduler"] } else { &[] };
    let names = ["etcd", "kube-apiserver", "kubectl", "kubelet"];
    let all = names.iter().chain(controllers);
    all.map(|name| format!("{name}: {}", last(name))).collect::<Vec<_>>().join("; ")
}

fn etcd() -> Vec<String> {
    let url = "http://127.0.0.1:2379";
    words(&[
        "--data-dir=/var/lib/etcd",
        "--unsafe-no-fsync",
        "--log-level=warn",
        &format!("--listen-client-urls={url}"),
        &format!("--advertise-client-urls={url}"),
        "--listen-peer-urls=http://127.0.0.1:2380",
    ])
}

/// It makes its own key pair, which signs the tokens of service accounts too.
fn api_server() -> Vec<String> {
    let (address, port) = SERVICE;
    // Nobody would take away the taint of a Node that is not ready yet. Without controllers nobody makes service accounts, or roles for them.
    let (without, authorization) = if has_controllers() {
        ("TaintNodesByCondition", "RBAC")
    } else {
        ("ServiceAccount,TaintNodesByCondition", "AlwaysAllow")
    };
    words(&[
        "--etcd-servers=http://127.0.0.1:2379",
        &format!("--bind-address={address}"),
        &format!("--secure-port={port}"),
        "--allow-privileged=true",
        &format!("--advertise-address={ADDRESS}"),
        "--endpoint-reconciler-type=none",
        // Nobody resolves the node's name; logs are read from its kubelet.
        "--kubelet-preferred-address-types=InternalIP",
        &format!("--cert-dir={DIR}"),
        "--service-account-issuer=https://kubernetes.default.svc",
        &format!("--service-account-key-file={DIR}/apiserver.key"),
        &format!("--service-account-signing-key-file={DIR}/apiserver.key"),
        &format!("--token-auth-file={TOKENS}"),
        &format!("--authorization-mode={authorization}"),
        "--service-cluster-ip-range=10.96.0.0/24",
        &format!("--disable-admission-plugins={without}"),
    ])
}

fn controllers() -> Vec<String> {
    words(&[
        &format!("--kubeconfig={KUBECONFIG}"),
        &format!("--controllers={ENABLED}"),
        &format!("--service-account-private-key-file={DIR}/apiserver.key"),
        &format!("--root-ca-file={DIR}/apiserver.crt"),
        &format!("--cert-dir={DIR}/controllers"),
        &format!("--bind-address={LOCAL}"),
        "--leader-elect=false",
    ])
}

fn scheduler() -> Vec<String> {
    words(&[
        &format!("--kubeconfig={KUBECONFIG}"),
        &format!("--cert-dir={DIR}/scheduler"),
        &format!("--bind-address={LOCAL}"),
        "--leader-elect=false",
    ])
}

fn proxy() -> Vec<String> {
    words(&[&format!("--kubeconfig={KUBECONFIG}"), "proxy", &format!("--port={PORT}")])
}

/// It is told of the runtime by flags, as those before 1.27 want it.
fn kubelet() -> Vec<String> {
    words(&[
        &format!("--config={KUBELET_CONFIG}"),
        &format!("--kubeconfig={KUBECONFIG}"),
        &format!("--hostname-override={NODE}"),
        &format!("--node-ip={ADDRESS}"),
        &format!("--cert-dir={DIR}/kubelet"),
        "--root-dir=/var/lib/kubelet",
        "--container-runtime=remote",
        &format!("--container-runtime-endpoint=unix://{SOCKET}"),
    ])
}

/// The server's own certificate, which it makes when it starts, is what clients trust.
fn kubeconfig() -> String {
    let (address, port) = SERVICE;
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: guest\n\
         clusters: [{{name: guest, cluster: {{server: \"https://{address}:{port}\", certificate-authority: {DIR}/apiserver.crt}}}}]\n\
         users: [{{name: guest, user: {{token: guest}}}}]\n\
         contexts: [{{name: guest, context: {{cluster: guest, user: guest}}}}]\n"
    )
}

/// Start a service that stays when the test that starts it has ended.
fn service(slice: &str, name: &str, arguments: &[String]) -> Result<Child> {
    let path = format!("{LOGS}/{name}.log");
    let log = File::create(&path).with_context(|| format!("cannot create {path}"))?;
    let cgroup = Cgroup::create(&format!("{slice}/{name}.service"))?;
    let mut command = Command::new(SELF);
    command.arg("exec-in").arg(cgroup.path()).arg(program(name)).args(arguments);
    command.env_clear().env("PATH", PATH).env("HOME", DIR).stdin(Stdio::null());
    command.stdout(log.try_clone().context("cannot share a log")?).stderr(log);
    command.process_group(0).spawn().with_context(|| format!("cannot start {name}"))
}

fn listens(name: &str, child: &mut Child, place: (&str, u16)) -> Result<()> {
    let listens = wait::until_some(STARTS_IN, &format!("{name} listens"), || {
        if TcpStream::connect(place).is_ok() {
            return Some(true);
        }
        // Ended before it listened: no need to wait for more.
        child.try_wait().ok().flatten().map(|_| false)
    });
    let listens = listens.with_context(last_words)?;
    ensure!(listens, "{name} ended: {}", last_words());
    Ok(())
}

fn ip(arguments: &[&str]) -> Result<()> {
    let status = Command::new("busybox").arg("ip").args(arguments).status();
    let status = status.context("cannot start busybox")?;
    ensure!(status.success(), "ip {arguments:?} failed: {status}");
    Ok(())
}

pub(super) fn program(name: &str) -> String {
    Path::new(KUBERNETES).join(name).display().to_string()
}

fn words(all: &[&str]) -> Vec<String> {
    all.iter().map(|&word| word.to_owned()).collect()
}
