//! Words about model families that are not supported.

/// Advice for a drafter that is loaded as a model.
pub(super) const DRAFTER: &str = "give it with the model that it was trained for: `draft_model`";

/// Advice for a family that is known by its name in GGUF or in `config.json`; `None` for unknown ones.
pub(super) fn advice(name: &str) -> Option<&'static str> {
    Some(match name {
        "hunyuan-moe" | "hunyuan_v1_moe" | "hy_v3" | "hy-v3" | "hyv3" | "hy_v4" | "hy-v4"
        | "hyv4" => "mixture of experts of Hunyuan is not supported; Hy-MT2-1.8B and 7B are dense",
        "hunyuan_vl" | "hunyuan-vl" | "hunyuanvl" => "the text models are `hunyuan-dense`",
        "dflash" | "dspark" => DRAFTER,
        "llada" | "dream" | "Dream" | "llada-moe" | "llada_moe" | "LLaDAMoE" | "rnd1" => {
            "its attention is bidirectional over the whole sequence; this runtime computes block-causal \
             models exactly"
        }
        "diffusion-gemma" | "diffusion_gemma" => {
            "it denoises a canvas of random tokens with self-conditioning, not masks, which is not supported"
        }
        "minicpm3" => "multi-head latent attention (MLA) is not supported",
        _ => return None,
    })
}
