// Prompts of a known number of tokens.

/**
 * Returns random letters that make `tokens` tokens, including the one that begins a text. Prompts have
 * no common prefix, so the prefix cache has no effect.
 */
export function prompt(tokens) {
  const letter = () => String.fromCharCode(97 + Math.floor(Math.random() * 26));
  return Array.from({ length: tokens - 1 }, letter).join("");
}
