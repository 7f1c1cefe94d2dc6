//! Reads a GGUF file with `boostr`: `read-with-boostr MODEL.gguf CONFIG.json IDS OUT`.
//!
//! Writes each tensor as little-endian f32 to `OUT/NAME`, and the logits of the comma-separated ids to
//! `OUT/logits`.

use boostr::format::gguf::{Gguf, gguf_to_hf_name};
use boostr::format::weight_source::DenseWeightSource;
use boostr::model::llama::Llama;
use boostr::model::load_config_auto;
use boostr::model::traits::Model;
use boostr::nn::{VarBuilder, VarMap};
use numr::autograd::Var;
use numr::runtime::Runtime;
use numr::runtime::cpu::{CpuDevice, CpuRuntime};
use numr::tensor::Tensor;
use std::error::Error;
use std::path::Path;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [model, config, ids, out] = &arguments[..] else {
        return Err("expected MODEL.gguf CONFIG.json IDS OUT".into());
    };
    let out = Path::new(out);
    let device = CpuDevice::default();
    let client = CpuRuntime::default_client(&device);
    let mut gguf = Gguf::open(model)?;
    let names: Vec<String> = gguf.tensor_names().map(str::to_owned).collect();
    for name in &names {
        let values = gguf.load_tensor_f32::<CpuRuntime>(name, &device)?.try_to_vec::<f32>()?;
        write(&out.join(name), &values)?;
    }
    // Dense weights: the program's own products of packed ones round activations to 8 bits.
    let mut source = DenseWeightSource::new(&mut gguf, &client);
    let mut weights =
        VarMap::<CpuRuntime>::from_weight_source(&mut source, &names, gguf_to_hf_name, &device)?;
    let config = load_config_auto(config)?;
    let mut weights = VarBuilder::new(&mut weights, &device);
    let model = Llama::<CpuRuntime>::from_varbuilder(&mut weights, &config)?;
    let ids: Vec<i64> = ids.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let tokens = Tensor::<CpuRuntime>::from_slice(&ids, &[1, ids.len()], &device)?;
    let logits = model.forward(&client, &Var::new(tokens, false))?;
    write(&out.join("logits"), &logits.tensor().try_to_vec::<f32>()?)?;
    Ok(())
}

fn write(path: &Path, values: &[f32]) -> std::io::Result<()> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    fs::write(path, bytes)
}
