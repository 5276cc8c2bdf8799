//! Arrows point one way: no crate depends on itself through others, dev-dependencies included, and no module of a crate
//! imports itself through others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

type Graph = BTreeMap<String, BTreeSet<String>>;

/// A way through a graph that ends where it starts, if there is one.
fn circle(graph: &Graph) -> Option<Vec<&str>> {
    fn visit<'a>(graph: &'a Graph, node: &'a str, way: &mut Vec<&'a str>, done: &mut BTreeSet<&'a str>) -> bool {
        if let Some(start) = way.iter().position(|&before| before == node) {
            way.drain(..start);
            way.push(node);
            return true;
        }
        if done.contains(node) {
            return false;
        }
        way.push(node);
        for next in graph.get(node).into_iter().flatten() {
            if visit(graph, next, way, done) {
                return true;
            }
        }
        way.pop();
        done.insert(node);
        false
    }
    let (mut way, mut done) = (Vec::new(), BTreeSet::new());
    graph.keys().any(|node| visit(graph, node, &mut way, &mut done)).then_some(way)
}

/// The packages of the workspace: name, folder, and those that each depends on, in whatever way.
fn packages() -> Vec<(String, PathBuf, BTreeSet<String>)> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_string();
    let package = |package: &Value| {
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap().to_path_buf();
        let dependencies = package["dependencies"].as_array().unwrap();
        (text(&package["name"]), folder, dependencies.iter().map(|dependency| text(&dependency["name"])).collect())
    };
    packages.iter().map(package).collect()
}

/// The first name of a path that follows `crate::`, or the first names of each path of a group in braces.
fn first_names(path: &str) -> Vec<String> {
    let name = |path: &str| path.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap().to_string();
    let Some(group) = path.strip_prefix('{') else { return vec![name(path)] };
    let (mut names, mut depth, mut start) = (Vec::new(), 0, 0);
    for (place, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                names.push(name(group[start..place].trim_start()));
                start = place + 1;
            }
            _ => {}
        }
        if c == '}' && start == place + 1 {
            break;
        }
    }
    names
}

/// Which modules of a crate import which, by the first names of their paths below `src`.
fn modules(source: &Path) -> Graph {
    let mut graph = Graph::new();
    let mut folders = vec![(source.to_path_buf(), None::<String>)];
    while let Some((folder, module)) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_string();
            let module = module.clone().unwrap_or(name);
            if path.is_dir() {
                folders.push((path, Some(module)));
            } else if path.extension().is_some_and(|end| end == "rs") && !["lib", "main"].contains(&module.as_str()) {
                let text = fs::read_to_string(&path).unwrap();
                // Tests may look anywhere.
                let code = text.split("#[cfg(test)]\nmod ").next().unwrap();
                let lines: Vec<_> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
                let mut code = lines.join("\n");
                if path.parent() == Some(source) || path.ends_with("mod.rs") && path.ancestors().nth(2) == Some(source)
                {
                    code = code.replace("super::", "crate::");
                }
                let imports: Vec<_> = code.split("crate::").skip(1).flat_map(first_names).collect();
                graph.entry(module.clone()).or_default().extend(imports.into_iter().filter(|name| *name != module));
            }
        }
    }
    let own: BTreeSet<_> = graph.keys().cloned().collect();
    graph.values_mut().for_each(|imports| imports.retain(|name| own.contains(name)));
    graph
}

#[test]
fn crates_depend_one_way() {
    let packages = packages();
    assert!(packages.len() > 10, "{packages:?}");
    let own: BTreeSet<_> = packages.iter().map(|(name, ..)| name.clone()).collect();
    let graph: Graph = packages
        .into_iter()
        .map(|(name, _, dependencies)| (name, dependencies.intersection(&own).cloned().collect()))
        .collect();
    assert_eq!(circle(&graph), None);
    // The suites and the jobs know no backend.
    let reaches = |name: &str| -> BTreeSet<String> {
        let (mut found, mut open) = (BTreeSet::new(), vec![name.to_string()]);
        while let Some(name) = open.pop() {
            open.extend(graph[&name].iter().filter(|next| found.insert((*next).clone())).cloned());
        }
        found
    };
    for backend in ["condprog-cpu", "condprog-cuda", "condprog-wgpu"] {
        assert!(!reaches("condprog-conformance").contains(backend), "condprog-conformance reaches {backend}");
        assert!(!reaches("condprog-table").contains(backend), "condprog-table reaches {backend}");
        assert!(!reaches("condprog-checkpoint").contains(backend), "condprog-checkpoint reaches {backend}");
    }
    assert!(reaches("condprog-core").is_empty(), "core depends on nothing");
}

#[test]
fn modules_import_one_way() {
    for (name, folder, _) in packages() {
        let graph = modules(&folder.join("src"));
        assert_eq!(circle(&graph), None, "in {name}");
    }
}

#[test]
fn circles_are_found() {
    let graph = |edges: &[(&str, &[&str])]| -> Graph {
        edges.iter().map(|(from, to)| (from.to_string(), to.iter().map(|name| name.to_string()).collect())).collect()
    };
    assert_eq!(circle(&graph(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])), None);
    let round = graph(&[("a", &["b"]), ("b", &["c", "d"]), ("c", &[]), ("d", &["b"])]);
    assert_eq!(circle(&round), Some(vec!["b", "d", "b"]));
    assert_eq!(circle(&graph(&[("a", &["a"])])), Some(vec!["a", "a"]));

    let source = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(source.path().join(name), text).unwrap();
    write("lib.rs", "mod one;\nmod two;\n");
    write("one.rs", "use crate::two::Two;\n#[cfg(test)]\nmod tests { use crate::three; }\n");
    write("two.rs", "// use crate::one;\npub struct Two;\n");
    assert_eq!(circle(&modules(source.path())), None);
    write("two.rs", "pub struct Two(crate::one::One);\n");
    assert_eq!(circle(&modules(source.path())), Some(vec!["one", "two", "one"]));
    write("two.rs", "use crate::{three::{A, B}, one};\n");
    assert_eq!(circle(&modules(source.path())), Some(vec!["one", "two", "one"]));
    write("two.rs", "use super::one::One;\n");
    assert_eq!(circle(&modules(source.path())), Some(vec!["one", "two", "one"]));
    write("one.rs", "#[cfg(test)]\nfn alone() {}\nuse crate::two::Two;\n");
    assert_eq!(circle(&modules(source.path())), Some(vec!["one", "two", "one"]));
}
