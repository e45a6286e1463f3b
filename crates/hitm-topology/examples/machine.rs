//! Prints the shape of a machine: `cargo run -p hitm-topology --example machine -- epyc-9654-2x96`.

use std::process::ExitCode;

use hitm_topology::{NodeId, Scope, parse};

fn main() -> ExitCode {
    let Some(argument) = std::env::args().nth(1) else {
        eprintln!("name a machine: a preset, an hwloc XML file or synthetic string, a sysfs dump, or `this`");
        return ExitCode::from(2);
    };
    let topology = match parse(&argument) {
        Ok(topology) => topology,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    println!("{}: {topology}", topology.name());
    println!("from: {}", topology.source());
    println!("processor: {}", topology.model().unwrap_or("unknown"));
    println!("as a string: {}", topology.to_synthetic().as_deref().unwrap_or("not regular"));
    println!("left out: {} CPUs", topology.excluded());
    for scope in [Scope::Node, Scope::Llc] {
        for part in 0..topology.parts(scope) {
            let cpus: Vec<u32> = topology.cpus_of(scope, part).iter().map(|&cpu| topology.cpu(cpu).os_index).collect();
            println!("{scope} {part}: CPUs {cpus:?}");
        }
    }
    for from in (0..topology.nodes() as u32).map(NodeId) {
        let row = (0..topology.nodes() as u32).map(|to| topology.node_distance(from, NodeId(to)));
        if let Some(row) = row.collect::<Option<Vec<f64>>>() {
            println!("distances from node {from}: {row:?}");
        }
    }
    ExitCode::SUCCESS
}
