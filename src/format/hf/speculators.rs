//! Configurations of drafters in the format of the library `speculators`.

use super::fields::unsupported;
use super::json;
use crate::format::LoadError;
use crate::format::index::File;
use serde_json::{Map, Value, json as value};

/// Returns the configuration as other drafters state it; `None` if it is not of this format. The layers'
/// configuration is a part of it there, and hidden states are those before a layer.
pub(super) fn flattened(file: &File) -> Result<Option<File>, LoadError> {
    let Value::Object(mut config) = json::parse::<Value>(file)? else { return Ok(None) };
    let kind = config.get("speculators_model_type").cloned();
    let kind = kind.or_else(|| config.get("speculators_config")?.get("algorithm").cloned());
    let Some(kind) = kind else { return Ok(None) };
    let name = &*file.name;
    if kind != "dflash" {
        let want = "`speculators_model_type` dflash";
        return Err(unsupported(name, want, kind.to_string())
            .advice("other kinds of speculators are not supported"));
    }
    let Some(Value::Object(mut plain)) = config.remove("transformer_layer_config") else {
        return Err(unsupported(name, "`transformer_layer_config`", "no such object"));
    };
    if let Some(other) = plain.get("hc_mult").filter(|&streams| *streams != 1) {
        let found = format!("`hc_mult` {other}: hyper-connections");
        return Err(unsupported(name, "one stream of hidden states", found));
    }
    let block = config.get("block_size").and_then(Value::as_u64);
    check_proposals(name, &config, block)?;
    let before = config.get("aux_hidden_state_layer_ids").and_then(Value::as_array);
    let taps = before.map(|ids| ids.iter().map(|id| id.as_u64()?.checked_sub(1)).collect());
    let Some(taps): Option<Vec<u64>> = taps.flatten() else {
        let want = "`aux_hidden_state_layer_ids` with layers from 1";
        let found = config.get("aux_hidden_state_layer_ids").map(Value::to_string);
        return Err(unsupported(name, want, found.unwrap_or("no such list".into())));
    };
    plain.insert("causal".into(), value!(causal(name, &config, &plain)?));
    plain.insert("target_layer_ids".into(), value!(taps));
    plain.insert("architectures".into(), value!(["DFlashDraftModel"]));
    plain.insert("model_type".into(), value!("qwen3"));
    plain.insert("sample_from_anchor".into(), value!(false));
    for key in ["block_size", "mask_token_id", "draft_vocab_size"] {
        plain.extend(config.remove_entry(key));
    }
    let text = Value::Object(plain).to_string();
    Ok(Some(File { name: file.name.clone(), bytes: text.into_bytes().into() }))
}

/// Checks that a block predicts a token for each row but the first.
fn check_proposals(
    name: &str,
    config: &Map<String, Value>,
    block: Option<u64>,
) -> Result<(), LoadError> {
    let methods = config.get("speculators_config").and_then(|c| c.get("proposal_methods"));
    for method in methods.and_then(Value::as_array).into_iter().flatten() {
        let tokens = method.get("speculative_tokens").and_then(Value::as_u64);
        if let Some((tokens, block)) = tokens.zip(block)
            && tokens.checked_add(1) != Some(block)
        {
            let want = format!("`speculative_tokens` one less than the `block_size` {block}");
            return Err(unsupported(name, want, tokens.to_string()));
        }
    }
    Ok(())
}

/// Returns true if rows of a block see no later ones: in layers with a window, unless the file says otherwise.
fn causal(
    name: &str,
    config: &Map<String, Value>,
    layers: &Map<String, Value>,
) -> Result<bool, LoadError> {
    let types = layers.get("layer_types").and_then(Value::as_array);
    let sliding = |layer: &&Value| **layer == "sliding_attention";
    let (all, windows) = types.map_or((0, 0), |t| (t.len(), t.iter().filter(sliding).count()));
    if config.get("sliding_window_non_causal") == Some(&Value::Bool(true)) || windows == 0 {
        return Ok(false);
    }
    if windows < all {
        let want = "windows in all layers or in none, or `sliding_window_non_causal` true";
        return Err(unsupported(name, want, "causal layers next to others"));
    }
    Ok(true)
}
