// Prompts whose length in tokens is known.

/**
 * `tokens` of a text of random letters, the one that begins a text included. No two begin alike,
 * so nothing comes from a prefix cache.
 */
export function prompt(tokens) {
  const letter = () => String.fromCharCode(97 + Math.floor(Math.random() * 26));
  return Array.from({ length: tokens - 1 }, letter).join("");
}
