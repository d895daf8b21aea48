//! What is read of a manifest, and what is refused.

use super::*;
use ebb_model::{ContainerKind, Qos, Secs, VolumeType};
use ebb_policy::snapshot::Workload;

fn read(text: &str) -> Result<Manifests> {
    let mut manifests = Manifests::default();
    manifests.add(text, Some("here"))?;
    Ok(manifests)
}

const POD: &str = "kind: Pod\nmetadata: {name: a, uid: u1}\nspec: {containers: [{name: c, resources: {limits: {cpu: 1.5, memory: 1073741824}}}]}\n";

#[test]
fn several_documents_lists_and_json_are_all_read() {
    let two = format!("{POD}---\n{}", POD.replace("u1", "u2"));
    assert_eq!(read(&two).unwrap().pods.len(), 2);
    let list = r#"{"kind": "PodList", "items": [{"metadata": {"name": "b", "namespace": "n", "uid": "u3"}, "spec": {"containers": [{"name": "c"}]}}]}"#;
    assert_eq!(read(list).unwrap().pods[0].full_name(), "n/b");
    assert_eq!(read(&format!("[{list}]")).unwrap().pods.len(), 1);
    assert_eq!(read(&format!("{list}\n{list}")).unwrap().pods.len(), 2);
    let other = read("kind: Service\nmetadata: {name: s}\n").unwrap();
    assert_eq!((other.pods.len(), other.notes.len()), (0, 1));
}

#[test]
fn a_limit_without_a_request_is_the_request_too() {
    let pod = &read(POD).unwrap().pods[0];
    let requests = &pod.containers[0].resources.requests;
    assert_eq!((requests.milli("cpu"), requests.value("memory")), (1500, 1 << 30));
    assert_eq!(pod.qos(), Qos::Guaranteed);
}

#[test]
fn what_is_over_or_elsewhere_is_left_out() {
    for extra in ["status: {phase: Failed}\n", "status: {phase: Succeeded}\n"] {
        let read = read(&format!("{POD}{extra}")).unwrap();
        assert_eq!((read.pods.len(), read.ended.len()), (0, 1));
    }
    let elsewhere = POD.replace("spec: {", "spec: {nodeName: there, ");
    assert_eq!(read(&elsewhere).unwrap().pods, []);
}

#[test]
fn a_mirror_pod_has_the_uid_of_its_static_pod() {
    let mirror =
        POD.replace("uid: u1", "uid: u1, annotations: {kubernetes.io/config.mirror: hash}");
    let pod = &read(&mirror).unwrap().pods[0];
    assert!(pod.is_static && pod.uid == "hash");
}

#[test]
fn errors_name_pod_and_field() {
    for (text, says) in [
        (
            POD.replace("1.5", "1.5x"),
            "pod default/a: spec.containers[0].resources.limits[\"cpu\"]: \"1.5x\"",
        ),
        (POD.replace("1.5", "-1"), "below zero"),
        (
            POD.replace("limits: {", "limit: {"),
            "spec.containers[0].resources.limit: there is no such field",
        ),
        (POD.replace("name: c,", ""), "spec.containers[0].name"),
        (POD.replace("spec: {", "spec: {priority: high, "), "spec.priority = \"high\""),
        (format!("{POD}status: {{qosClass: Best}}"), "status.qosClass"),
        (
            format!(
                "{POD}status: {{containerStatuses: [{{name: c, containerID: \"containerd://../x\"}}]}}"
            ),
            "containerID",
        ),
        (
            format!(
                "{POD}status: {{containerStatuses: [{{name: c, containerID: \"../../../../outside://ab\"}}]}}"
            ),
            "pod default/a: status.containerStatuses[name=c].containerID = \"../../../../outside://ab\"",
        ),
        (POD.replace("u1", "../x"), "pod default/a: metadata.uid = \"../x\""),
        (POD.replace("name: a,", "name: \"a/../b\","), "metadata.name = \"a/../b\""),
        (POD.replace("name: a,", "name: a, namespace: \"..\","), "metadata.namespace = \"..\""),
        (POD.replace("name: c,", "name: \"c\\e\","), "spec.containers[0].name = \"c\\u{1b}\""),
        (
            POD.replace("uid: u1", "annotations: {kubernetes.io/config.mirror: a/b}"),
            "config.mirror\"] = \"a/b\"",
        ),
        (
            POD.replace("{limits: {cpu: 1.5, memory: 1073741824}}", "lots"),
            "pod default/a: spec.containers[0].resources = \"lots\"",
        ),
        (
            POD.replace("{limits:", "{requests: {cpu: 2}, limits:"),
            "pod default/a: spec.containers[0].resources.requests[\"cpu\"] = 2: more than the limit",
        ),
        (
            POD.replace("spec: {", "spec: {resources: {requests: {cpu: 2}, limits: {cpu: 1}}, "),
            "pod default/a: spec.resources.requests[\"cpu\"] = 2: more than the limit",
        ),
        (
            POD.replace("spec: {", "spec: {resources: {limits: {cpu: 1, memory: 2Gi}}, "),
            "pod default/a: spec.containers[0].resources.limits[\"cpu\"] = 1500m: container c may use more than the whole pod, whose limit spec.resources.limits[\"cpu\"] is 1; write at most that",
        ),
        (
            POD.replace("spec: {", "spec: {initContainers: [{name: c}], "),
            "pod default/a: spec: name of a container = \"c\": another container",
        ),
        (POD.replace("cpu: 1.5", "hugepages-0: 1"), "limits[\"hugepages-0\"]"),
        (POD.replace("cpu: 1.5", "hugepages-3000: 3000"), "limits[\"hugepages-3000\"]"),
        ("metadata: {}".to_owned(), "kind"),
        ("{\"kind\": ".to_owned(), "not JSON"),
    ] {
        let said = format!("{:#}", read(&text).unwrap_err());
        assert!(said.contains(says), "{says} is not in {said}");
    }
}

#[test]
fn a_static_pod_without_a_uid_costs_only_itself_and_is_said() {
    let two = format!("{}---\n{}", POD.replace(", uid: u1", ""), POD);
    let read = read(&two).unwrap();
    assert_eq!((read.pods.len(), read.unnamed.len()), (1, 1));
    assert!(read.notes[0].contains("default/a: metadata.uid"), "{:?}", read.notes);
}

#[test]
fn only_a_running_container_has_an_id() {
    let status = |state: &str| {
        let text = format!(
            "{POD}status: {{containerStatuses: [{{name: c, containerID: \"containerd://ab\", state: {state}}}]}}"
        );
        read(&text).unwrap().pods[0].containers[0].id.clone()
    };
    assert_eq!(status("{running: {}}").unwrap().id, "ab");
    assert_eq!(status("{terminated: {exitCode: 0}}"), None);
}

const WHOLE: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, uid: 0a1b, labels: {app: web}}
spec:
  priorityClassName: system-node-critical
  terminationGracePeriodSeconds: 7
  initContainers:
  - {name: setup, image: a}
  - {name: proxy, image: b, restartPolicy: Always, resources: {requests: {memory: 10Mi}}}
  containers:
  - name: web
    image: c
    resources:
      requests: {cpu: 1, memory: 64Mi}
      limits: {memory: 128Mi, ephemeral-storage: 1Gi, nvidia.com/gpu: 1}
  volumes:
  - {name: scratch, emptyDir: {sizeLimit: 100Mi}}
  - {name: plain, emptyDir: {}}
  - {name: ram, emptyDir: {medium: Memory}}
  - {name: host, hostPath: {path: /srv}}
  - {name: keys, secret: {secretName: k}}
";

#[test]
fn a_pod_is_read_with_what_a_decision_needs() {
    let pod = Workload::from(&read(WHOLE).unwrap().pods[0]);
    assert_eq!((pod.key.name.as_str(), pod.key.uid.as_deref()), ("shop/web", Some("0a1b")));
    assert_eq!(pod.priority, Some(2_000_001_000));
    assert_eq!(pod.termination_grace, Some(Secs(7)));
    let kinds: Vec<_> = pod.containers.iter().map(|c| (c.name.as_str(), c.kind)).collect();
    assert_eq!(
        kinds,
        [
            ("setup", ContainerKind::Init),
            ("proxy", ContainerKind::Sidecar),
            ("web", ContainerKind::Regular)
        ]
    );
    let web = &pod.containers[2];
    assert_eq!(web.requests.cpu, Some("1".parse().unwrap()));
    assert_eq!(web.requests.ephemeral_storage, Some("1Gi".parse().unwrap()), "from its limit");
    let volumes: Vec<_> = pod.volumes.iter().map(|v| v.volume_type).collect();
    let dir = VolumeType::EmptyDir;
    assert_eq!(volumes, [dir, dir, dir, VolumeType::HostPath, VolumeType::Secret]);
    assert_eq!(pod.volumes[0].size_limit, Some("100Mi".parse().unwrap()));
}

#[test]
fn a_file_that_is_wrong_costs_only_its_own_pod_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    write("a.yaml", WHOLE);
    write("b.yaml", WHOLE);
    write("c.yaml", "kind: Deployment\nmetadata: {name: x}\nspec: {}\n");
    write("d.yaml", "kind: [\n");
    write("e.yaml", &WHOLE.replace("name: web,", "name: x,").replace("64Mi", "64Mib"));
    write(".hidden.yaml", WHOLE);
    write("notes.txt", "not a manifest");
    std::os::unix::fs::symlink("/nowhere", dir.path().join("f.yaml")).unwrap();
    let found = Manifests::read_each(dir.path()).unwrap();
    assert_eq!(found.pods.len(), 1);
    assert_eq!(found.problems.len(), 5, "{:?}", found.problems);
    assert!(found.problems[0].contains("already a manifest of shop/web"));
    assert!(found.problems[1].contains("only \"Pod\""), "{:?}", found.problems);
    assert!(found.problems[3].contains("64Mib"), "{:?}", found.problems);
    assert!(found.problems[4].contains("f.yaml"), "a link that leads nowhere");
}

#[test]
fn a_file_may_be_about_any_pod_unless_it_says_that_it_is_about_none() {
    for (text, is_incomplete) in [
        (WHOLE, false),
        ("kind: Deployment\nmetadata: {name: x}\nspec: {}\n", false),
        ("", true),
        ("kind: Pod\nmetad", true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.yaml"), text).unwrap();
        fs::write(dir.path().join("b.yaml"), WHOLE).unwrap();
        let found = Manifests::read_each(dir.path()).unwrap();
        assert_eq!((found.is_incomplete, found.pods.len()), (is_incomplete, 1), "{text}");
    }
}

#[test]
fn a_directory_that_is_not_there_is_an_error() {
    assert!(Manifests::read_each(Path::new("/nowhere/at/all")).is_err());
}

#[test]
fn a_pod_that_is_over_is_still_described() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), format!("{POD}status: {{phase: Succeeded}}\n")).unwrap();
    let found = Manifests::read_each(dir.path()).unwrap();
    assert_eq!((found.pods.len(), found.problems.len()), (0, 0), "{found:?}");
    let all: Vec<_> = found.all().iter().map(|pod| pod.full_name()).collect();
    assert_eq!(all, ["default/a"], "or what is left of it would count as a deleted pod's");
}
