#!/usr/bin/env python3
"""The manifests of examples/kubernetes, as far as that goes without a cluster: they have the fields that Kubernetes
knows, agree with each other, and what they start runs: in network namespaces instead of pods, with the names of the
headless service in /etc/hosts, and nothing but the ports of the policy open. And the container file names what is
there."""
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
import unittest

LAUNCHED = os.path.abspath(sys.argv.pop(1))
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
FOLDER = os.path.join(ROOT, "examples", "kubernetes")
sys.path.insert(0, os.path.join(ROOT, "tools"))
from hosts import Cannot, Hosts  # noqa: E402

try:
    import yaml
except ImportError:
    yaml = None

# What of the API's types the manifests may use, as in its reference. A list stands for a list of such, str for a text,
# a tuple for one of these; {str: str} has any keys.
LABELS = {str: str}
METADATA = {"name": str}
POD = {"subdomain": str, "restartPolicy": ("Never", "OnFailure"), "containers": [{
    "name": str, "image": str, "command": [str], "env": [{"name": str, "value": str, "valueFrom": {
        "fieldRef": {"fieldPath": str}, "secretKeyRef": {"name": str, "key": str}}}]}]}
JOB = {"completions": int, "parallelism": int, "completionMode": ("Indexed",), "backoffLimit": int,
       "template": {"spec": POD}}
PEERS = [{"podSelector": {"matchLabels": LABELS}}]
PORTS = [{"protocol": ("TCP", "UDP"), "port": int, "endPort": int}]
KINDS = {
    ("v1", "Service"): {"clusterIP": ("None",), "publishNotReadyAddresses": bool, "selector": LABELS},
    ("batch/v1", "Job"): JOB,
    ("networking.k8s.io/v1", "NetworkPolicy"): {
        "podSelector": {"matchLabels": LABELS}, "policyTypes": [("Ingress", "Egress")],
        "ingress": [{"from": PEERS, "ports": PORTS}], "egress": [{"to": PEERS, "ports": PORTS}]},
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): {
        "failurePolicy": {"maxRestarts": int},
        "network": {"enableDNSHostnames": bool, "publishNotReadyAddresses": bool},
        "replicatedJobs": [{"name": str, "replicas": int, "template": {"spec": JOB}}]},
}


def objections(value, kind, where):
    """What of value is not as kind has it."""
    if isinstance(kind, tuple):
        return [] if value in kind else [f"{where} is {value!r}, not one of {kind}"]
    if isinstance(kind, type):
        return [] if type(value) is kind else [f"{where} is {value!r}, no {kind.__name__}"]
    if type(value) is not type(kind):
        return [f"{where} is no {type(kind).__name__}"]
    if isinstance(kind, list):
        return [o for i, each in enumerate(value) for o in objections(each, kind[0], f"{where}[{i}]")]
    found = []
    for key, each in value.items():
        if key not in kind and str not in kind:
            found.append(f"{where}.{key} is not known")
        else:
            found += objections(each, kind.get(key, kind.get(str)), f"{where}.{key}")
    return found


def manifests(name):
    with open(os.path.join(FOLDER, name)) as file:
        return {each["kind"]: each for each in yaml.safe_load_all(file)}


@unittest.skipIf(yaml is None, "there is no module yaml (Debian's package python3-yaml)")
class Manifests(unittest.TestCase):
    def setUp(self):
        job, jobset = manifests("job.yaml"), manifests("jobset.yaml")["JobSet"]
        self.service = job["Service"]
        self.jobs = {"job.yaml": job["Job"]["spec"],
                     "jobset.yaml": jobset["spec"]["replicatedJobs"][0]["template"]["spec"]}
        # The name of a rank's pod, as its peers resolve it.
        pod = jobset["spec"]["replicatedJobs"][0]["name"]
        self.names = {"job.yaml": "tutti-%d.tutti", "jobset.yaml": f"{jobset['metadata']['name']}-{pod}-0-%d.tutti"}
        self.policy = manifests("network-policy.yaml")["NetworkPolicy"]["spec"]

    def test_they_have_fields_that_kubernetes_knows(self):
        names = sorted(os.listdir(FOLDER))
        self.assertEqual(names, ["job.yaml", "jobset.yaml", "network-policy.yaml"])
        for name in names:
            with open(os.path.join(FOLDER, name)) as file:
                for each in yaml.safe_load_all(file):
                    spec = KINDS[each["apiVersion"], each["kind"]]
                    kind = {"apiVersion": str, "kind": str, "metadata": METADATA, "spec": spec}
                    self.assertEqual(objections(each, kind, name), [])
                    self.assertEqual(set(each), set(kind))

    def test_a_wrong_field_is_found(self):
        spec = dict(self.jobs["job.yaml"], completion=4)
        self.assertEqual(objections(spec, JOB, "spec"), ["spec.completion is not known"])
        spec = dict(self.jobs["job.yaml"], completions="4")
        self.assertEqual(objections(spec, JOB, "spec"), ["spec.completions is '4', no int"])

    def test_they_agree_with_each_other(self):
        name = self.service["metadata"]["name"]
        self.assertEqual(self.service["spec"]["selector"], {"job-name": "tutti"})
        self.assertEqual(self.jobs["job.yaml"]["template"]["spec"]["subdomain"], name)
        self.assertEqual(self.policy["podSelector"]["matchLabels"], self.service["spec"]["selector"])
        for manifest, job in self.jobs.items():
            environment = self.environment(manifest, 2)
            self.assertEqual(job["completions"], job["parallelism"])
            self.assertEqual(environment["WORLD_SIZE"], str(job["completions"]))
            self.assertEqual(environment["RANK"], "2")
            self.assertEqual(environment["MASTER_ADDR"], self.names[manifest] % 0)
            self.assertEqual(int(environment["MASTER_PORT"]), self.policy["ingress"][0]["ports"][0]["port"])

    def environment(self, manifest, index):
        """Of the pod of that index, as the kubelet makes it."""
        def value(variable):
            if "value" in variable:
                return variable["value"]
            source = variable["valueFrom"]
            if "fieldRef" in source:
                path = source["fieldRef"]["fieldPath"]
                self.assertEqual(path, "metadata.annotations['batch.kubernetes.io/job-completion-index']")
                return str(index)
            self.assertEqual(source["secretKeyRef"], {"name": "tutti", "key": "secret"})
            return "5e" * 32
        container, = self.jobs[manifest]["template"]["spec"]["containers"]
        return {variable["name"]: value(variable) for variable in container["env"]}

    def test_what_they_start_runs_with_the_ports_of_the_policy(self):
        for manifest in self.jobs:
            with self.subTest(manifest), tempfile.TemporaryDirectory() as folder:
                self.run_in_namespaces(manifest, folder)

    def run_in_namespaces(self, manifest, folder):
        container, = self.jobs[manifest]["template"]["spec"]["containers"]
        count = self.jobs[manifest]["completions"]
        os.symlink(LAUNCHED, f"{folder}/program")
        open(f"{folder}/hosts", "w").close()
        # Hosts enters a namespace for its bridges: in a process of its own.
        said, told = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(told, 1), os.dup2(told, 2)
            try:
                os._exit(self.be_cluster(container["command"], manifest, count, folder))
            except Cannot as error:
                print(error, flush=True)
                os._exit(77)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(told)
        with os.fdopen(said, errors="replace") as output:
            text = output.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 77:
            self.skipTest(f"no namespaces: {text.strip()}")
        self.assertEqual(code, 0, text)
        self.assertEqual(sorted(re.findall(r"rank \d+ of \d+ is right", text)),
                         [f"rank {r} of {count} is right" for r in range(count)], text)

    def be_cluster(self, command, manifest, count, folder):
        probe = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False)
        if probe.returncode != 0:  # below a root that is no mount, as in a chroot
            raise Cannot(probe.stderr)
        hosts = Hosts(count)
        try:
            ports = ", ".join(str(p["port"]) if "endPort" not in p else f"{p['port']}-{p['endPort']}"
                              for p in self.policy["ingress"][0]["ports"])
            for host in range(count):
                subprocess.run(hosts.inside(
                    host, "nft", "add table inet tutti; "
                    "add chain inet tutti in { type filter hook input priority 0; policy drop; }; "
                    "add rule inet tutti in iifname lo accept; "
                    "add rule inet tutti in ct state established,related accept; "
                    f"add rule inet tutti in tcp dport {{ {ports} }} accept"), check=True)
            with open(f"{folder}/start", "w") as script:
                script.write(f'mount --bind {folder}/hosts /etc/hosts && cd {folder} && exec "$@"\n')
            pods = [subprocess.Popen(hosts.inside(host, "unshare", "--mount", "sh", f"{folder}/start", *command),
                                     env={"PATH": os.environ["PATH"], "TUTTI_INIT_TIMEOUT_MS": "60000",
                                          **self.environment(manifest, host)})
                    for host in range(count)]
            time.sleep(0.5)  # before that no pod has a name
            with open(f"{folder}/hosts", "w") as names:
                names.writelines(f"{hosts.address(host)} {self.names[manifest] % host}\n" for host in range(count))
            return max(abs(pod.wait(timeout=90)) for pod in pods)
        finally:
            hosts.end()


class Container(unittest.TestCase):
    def test_the_container_file_runs_what_is_there(self):
        with open(os.path.join(ROOT, "Containerfile")) as file:
            text = file.read()
        runs = re.findall(r"^RUN (\S+)", text, re.M)
        self.assertEqual(sorted(runs), ["tools/check", "tools/quickstart"])
        for program in runs:
            self.assertTrue(os.access(os.path.join(ROOT, program), os.X_OK), program)
        stages = re.findall(r"^FROM (\S+) AS (\w+)$", text, re.M)
        self.assertEqual(len(stages), len(re.findall("^FROM", text, re.M)))
        known = {"docker.io/library/debian:12"}
        for base, name in stages:
            self.assertIn(base, known)
            known.add(name)
        for wanted in re.findall(r"--target (\w+)", text):
            self.assertIn(wanted, known)
        with open(os.path.join(ROOT, "tools", "quickstart")) as file:
            built = file.read()
        program, *arguments = re.findall(r'"([^"]+)"', re.search(r"^CMD \[(.*)\]$", text, re.M)[1])
        self.assertEqual((program, arguments[2]), ("build/tools/tutti-run", "build/bench/all_reduce_perf"))
        for name in ("tools/tutti-run", "bench/all_reduce_perf"):
            self.assertIn(name, built)


if __name__ == "__main__":
    unittest.main()
