//! Flags of the linker for a library that Python loads, whoever calls cargo.

fn main() {
    pyo3_build_config::add_extension_module_link_args();
}
