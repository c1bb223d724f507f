//! The chart of the transfer service for Kubernetes, rendered: what every pod must be, and that the
//! program takes the flags and settings it is given.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{have, peer, programs, said, told, tree, within};

/// What `helm template` is told: the chart asks for a newer one than helm assumes.
const KUBERNETES: &str = "1.31.0";

/// Objects of the chart with the values of a file, or with its own.
struct Chart(Vec<Value>);

fn helm() -> Option<PathBuf> {
    peer("helm")
}

fn folder() -> PathBuf {
    tree().join("packaging/helm/godwit-service")
}

fn fleet() -> String {
    folder().join("fleet.yaml").to_str().unwrap().to_owned()
}

fn template(helm: &Path, more: &[&str]) -> Command {
    let mut command = within(60, helm);
    command.args(["template", "site", "--kube-version", KUBERNETES]);
    command.arg(folder()).args(more);
    command
}

impl Chart {
    fn rendered(helm: &Path, more: &[&str]) -> Self {
        let text = said(&mut template(helm, more));
        Self(serde_saphyr::from_multiple(&text).unwrap())
    }

    fn kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(move |object| object["kind"] == kind)
    }

    fn pods(&self) -> impl Iterator<Item = &Value> {
        let specs = self
            .0
            .iter()
            .map(|object| &object["spec"]["template"]["spec"]);
        specs.filter(|spec| spec.is_object())
    }

    fn serve(&self) -> &Value {
        let pod = &self.kind("Deployment").next().unwrap()["spec"]["template"]["spec"];
        &pod["containers"][0]
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn words(value: &Value) -> Vec<&str> {
    list(value)
        .iter()
        .map(|word| word.as_str().unwrap())
        .collect()
}

#[test]
fn the_chart_has_no_fault_that_helm_knows() {
    let Some(helm) = helm() else { return };
    for more in [vec![], vec!["-f".to_owned(), fleet()]] {
        said(
            within(60, &helm)
                .args(["lint", "--strict"])
                .arg(folder())
                .args(more),
        );
    }
}

#[test]
fn every_pod_is_restricted_and_probed() {
    let Some(helm) = helm() else { return };
    for (more, pods) in [(vec![], 1), (vec!["-f".to_owned(), fleet()], 3)] {
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        let chart = Chart::rendered(&helm, &more);
        assert_eq!(chart.pods().count(), pods);
        for pod in chart.pods() {
            assert_eq!(pod["automountServiceAccountToken"], false);
            let security = &pod["securityContext"];
            assert_eq!(security["runAsNonRoot"], true);
            assert_eq!(security["seccompProfile"]["type"], "RuntimeDefault");
            let all = list(&pod["containers"]).iter();
            for container in all.clone().chain(list(&pod["initContainers"])) {
                let security = &container["securityContext"];
                assert_eq!(security["allowPrivilegeEscalation"], false);
                assert_eq!(security["readOnlyRootFilesystem"], true);
                assert_eq!(words(&security["capabilities"]["drop"]), ["ALL"]);
            }
            for container in all {
                for probe in ["livenessProbe", "readinessProbe"] {
                    assert!(container[probe].is_object(), "{probe}: {container:#}");
                }
            }
            // Every mount is of a volume, or of a claim of each pod.
            let mut volumes: Vec<_> = list(&pod["volumes"]).iter().map(|v| &v["name"]).collect();
            let claimed = Value::from("state");
            volumes.push(&claimed);
            for mount in list(&pod["containers"][0]["volumeMounts"]) {
                assert!(volumes.contains(&&mount["name"]), "{mount}");
            }
        }
    }
}

#[test]
fn secrets_come_from_secrets_that_the_chart_does_not_make() {
    let Some(helm) = helm() else { return };
    let chart = Chart::rendered(&helm, &["-f", &fleet()]);
    assert_eq!(chart.kind("Secret").count(), 0);
    for pod in chart.pods() {
        for container in list(&pod["containers"]) {
            for word in words(&container["args"]) {
                let lower = word.to_lowercase();
                assert!(
                    !lower.contains("password") && !lower.contains("postgres:"),
                    "{word}"
                );
            }
        }
    }
    let settings = chart.kind("ConfigMap").next().unwrap();
    let text = settings["data"]["service.toml"].as_str().unwrap();
    assert!(text.contains("max-jobs = 1000\n"), "{text}");
    // What would put a secret into a plain config map, and what is no TOML.
    for settings in ["database = \"postgres://u:p@h/d\"", "[a"] {
        let set = format!("serve.settings={settings}");
        let refused = template(&helm, &["--set-string", &set]).output().unwrap();
        assert!(!refused.status.success(), "{}", told(&refused));
    }
}

#[test]
fn processes_of_two_versions_never_serve_at_once_and_one_of_several_stays() {
    let Some(helm) = helm() else { return };
    let fleet = Chart::rendered(&helm, &["-f", &fleet()]);
    let deployment = &fleet.kind("Deployment").next().unwrap()["spec"];
    assert_eq!(deployment["strategy"]["type"], "Recreate");
    let migrate = &deployment["template"]["spec"]["initContainers"][0];
    assert_eq!(words(&migrate["args"])[0], "migrate");
    assert_eq!(fleet.kind("PodDisruptionBudget").count(), 1);
    let one = Chart::rendered(&helm, &["--set", "serve.replicas=1"]);
    // It would keep a node from ever being emptied.
    assert_eq!(one.kind("PodDisruptionBudget").count(), 0);
    let policies: Vec<_> = fleet.kind("NetworkPolicy").collect();
    assert_eq!(policies.len(), 2);
    assert_eq!(list(&policies[1]["spec"]["ingress"]).len(), 0);
    assert_eq!(fleet.kind("ServiceMonitor").count(), 1);
}

#[test]
fn agents_have_a_name_a_token_and_a_directory_of_their_own() {
    let Some(helm) = helm() else { return };
    let chart = Chart::rendered(&helm, &["-f", &fleet()]);
    let groups: Vec<_> = chart
        .kind("StatefulSet")
        .map(|group| &group["spec"])
        .collect();
    assert_eq!(groups.len(), 2);
    for group in &groups {
        let agent = &group["template"]["spec"]["containers"][0];
        let words = words(&agent["args"]);
        for word in [
            "--name=$(POD_NAME)",
            "--token-file=/run/godwit/token/$(POD_NAME)",
        ] {
            assert!(words.contains(&word), "{words:?}");
        }
        assert_eq!(agent["env"][0]["name"], "POD_NAME");
        if have(&["godwit-service"], &[]) {
            // The help comes where all flags before it are known.
            let program = programs().join("godwit-service");
            said(within(60, program).args(&words).arg("--help"));
        }
    }
    assert_eq!(list(&groups[0]["volumeClaimTemplates"]).len(), 1);
    assert_eq!(list(&groups[1]["volumeClaimTemplates"]).len(), 0);
}

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_service_starts_with_what_the_chart_gives_it() {
    let tools = [("openssl", "openssl")];
    let Some(helm) = helm() else { return };
    if !have(&["godwit-service"], &tools) {
        return;
    }
    let chart = Chart::rendered(&helm, &["-f", &fleet()]);
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in [
        "database",
        "sealing-key",
        "tls",
        "client-ca",
        "settings",
        "secrets",
    ] {
        fs::create_dir(at(name)).unwrap();
    }
    let database = format!("sqlite:{}?mode=rwc", at("db").display());
    fs::write(at("database/url"), database).unwrap();
    fs::write(at("sealing-key/key"), "0123456789abcdef".repeat(4)).unwrap();
    let settings = chart.kind("ConfigMap").next().unwrap()["data"]["service.toml"].as_str();
    let secret = at("secrets").to_str().unwrap().to_owned();
    let settings = settings.unwrap().replace("/etc/godwit/secrets", &secret);
    fs::write(at("settings/service.toml"), settings).unwrap();
    fs::create_dir(at("secrets/godwit-issuer")).unwrap();
    fs::write(at("secrets/godwit-issuer/client-secret"), "hush").unwrap();
    let mut openssl = within(60, "openssl");
    openssl.args([
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=localhost",
    ]);
    openssl
        .arg("-keyout")
        .arg(at("tls/tls.key"))
        .arg("-out")
        .arg(at("tls/tls.crt"));
    said(&mut openssl);
    fs::copy(at("tls/tls.crt"), at("client-ca/ca.crt")).unwrap();
    let here = folder.path().to_str().unwrap();
    let moved = |word: &&str| {
        let word = word
            .replace("/run/godwit", here)
            .replace("/etc/godwit", here);
        // Others run at the same time: the ports of the chart may be taken.
        let word = word.replace("0.0.0.0:8446", "127.0.0.1:0");
        word.replace("0.0.0.0:8447", "127.0.0.1:0")
            .replace("0.0.0.0:9812", "127.0.0.1:0")
    };
    let program = programs().join("godwit-service");
    let pod = &chart.kind("Deployment").next().unwrap()["spec"]["template"]["spec"];
    let migrate = words(&pod["initContainers"][0]["args"]);
    said(within(60, &program).args(migrate.iter().map(moved)));
    let out = at("out");
    let serve = words(&chart.serve()["args"]);
    let mut command = Command::new(&program);
    command
        .args(serve.iter().map(moved))
        .stderr(fs::File::create(at("log")).unwrap());
    command.stdout(Stdio::from(fs::File::create(&out).unwrap()));
    let _running = Running(command.spawn().unwrap());
    for _ in 0..300 {
        let printed = fs::read_to_string(&out).unwrap();
        if let Some(address) = printed.trim().strip_prefix("https://") {
            said(within(60, &program).args(["probe", "--address", address]));
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!(
        "it does not serve: {}",
        fs::read_to_string(at("log")).unwrap()
    );
}
