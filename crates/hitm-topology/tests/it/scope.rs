//! Names of scopes, and ids.

use expect_test::expect;
use hitm_topology::{CpuId, Scope};

#[test]
fn names_are_read_back() {
    for scope in Scope::ALL {
        assert_eq!(scope.to_string().parse::<Scope>().unwrap(), scope);
    }
    assert_eq!(format!("{:>8}|", Scope::Llc), "     llc|");
}

#[test]
fn other_names_are_refused() {
    let error = "socket".parse::<Scope>().unwrap_err();
    expect!["`socket`: there is no such scope; use `machine`, `node`, `llc`, `core` or `cpu`"]
        .assert_eq(&error.to_string());
}

#[test]
fn ids_print_as_numbers() {
    assert_eq!(format!("{} {:?} {}", CpuId(7), CpuId(7), CpuId(7).index()), "7 CpuId(7) 7");
}
