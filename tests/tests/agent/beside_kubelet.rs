//! `ebb run --kubernetes` with arguments that do not fit: refused before anything starts, in words that say what to do.

use crate::{CONFIG, arguments, config, ebb};
use ebb_tests::fake_node::FakeNode;

const KUBECONFIG: &str = "\
apiVersion: v1
kind: Config
current-context: here
clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]
contexts: [{name: here, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
";

/// What is said when it is refused.
fn refused(text: &str, extra: &[&str]) -> String {
    let node = FakeNode::new();
    let file = config(text);
    let mut command = ebb();
    arguments(&mut command, &node, file.path()).arg("--state").arg(node.state());
    command.env_remove("NODE_NAME").env_remove("KUBECONFIG").env("HOME", node.state());
    let output = command.args(["--kubernetes", "--cri", "/nowhere/cri.sock"]).args(extra).output();
    let output = output.unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{extra:?}: {told}");
    told
}

#[test]
fn arguments_that_do_not_fit_a_cluster_are_refused_by_the_flag_or_file_and_what_to_do() {
    let kubeconfig = config(KUBECONFIG);
    let known = kubeconfig.path().to_str().unwrap();
    let cases: &[(&[&str], &[&str])] = &[
        (&[], &["--node-name NAME", "NODE_NAME", "spec.nodeName"]),
        (&["--node-name", "a/b"], &["--node-name \"a/b\"", "lower-case"]),
        (&["--node-name", "a"], &["--kubeconfig FILE", "KUBECONFIG"]),
        (&["--node-name", "a", "--kubeconfig", "/nowhere/config"], &["/nowhere/config"]),
        (
            &["--node-name", "a", "--kubeconfig", known, "--context", "there"],
            &[known, "--context \"there\"", "here"],
        ),
        (&["--node-name", "a", "--pod-manifests", "/etc"], &["--pod-manifests", "leave it out"]),
    ];
    for (extra, words) in cases {
        let told = refused(&format!("{CONFIG}  mode: kubernetes\n"), extra);
        for word in *words {
            assert!(told.contains(word), "{extra:?} without {word:?}: {told}");
        }
    }
}

#[test]
fn a_configuration_for_a_node_without_a_kubelet_is_refused_beside_one() {
    let told = refused(&format!("{CONFIG}  mode: standalone\n"), &["--node-name", "a"]);
    assert!(told.contains("ebb.mode = \"standalone\""), "{told}");
    assert!(told.contains("write `mode: kubernetes`"), "{told}");
}

#[test]
fn a_configuration_that_names_no_mode_is_for_a_cluster_with_kubernetes() {
    // It gets as far as what the next argument lacks.
    let told = refused(CONFIG, &[]);
    assert!(told.contains("--node-name NAME"), "{told}");
}
