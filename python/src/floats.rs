//! Vectors of the engine as NumPy arrays, without a copy.

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The owner of the memory of an array. NumPy reads and writes there; this crate does not any more.
#[pyclass(frozen)]
struct Floats {
    _values: Vec<f32>,
    address: usize,
    length: usize,
}

#[pymethods]
impl Floats {
    /// NumPy's array interface, version 3.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let order = if cfg!(target_endian = "little") { "<f4" } else { ">f4" };
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", (self.length,))?;
        interface.set_item("typestr", order)?;
        interface.set_item("data", (self.address, false))?;
        Ok(interface)
    }
}

/// Returns a `numpy.ndarray` of `float32` on the memory of `values`.
pub fn array(py: Python<'_>, mut values: Vec<f32>) -> PyResult<Bound<'_, PyAny>> {
    let numpy = py.import("numpy").map_err(|cause| {
        let message = "vectors are NumPy arrays: install it (pip install numpy)";
        let error = PyImportError::new_err(message);
        error.set_cause(py, Some(cause));
        error
    })?;
    // The address of an empty vector is no memory, which NumPy accepts for a length of 0.
    let (address, length) = (values.as_mut_ptr().addr(), values.len());
    numpy.call_method1("asarray", (Floats { _values: values, address, length },))
}
