/** Links that carry a prompt, a mode and a seed: `?q=…&mode=iterative&seed=7`. */

/** What a link asks for. */
export interface LinkedQuestion {
  prompt: string;
  /** Decode mode; `null` keeps that of the page. */
  mode: string | null;
  /** Seed of the answer; `null` takes a random one. */
  seed: number | null;
}

/** Maximum number of characters of a prompt in a link. */
const LONGEST = 2000;

/** Returns the question of an address, or `null` if it has none. */
export function linkedQuestion(address: string): LinkedQuestion | null {
  const values = new URL(address).searchParams;
  const prompt = values.get("q")?.trim().slice(0, LONGEST);
  if (!prompt) return null;
  const seed = /^\d{1,10}$/.exec(values.get("seed") ?? "")?.[0];
  const mode = /^[a-z]{1,20}$/.exec(values.get("mode") ?? "")?.[0];
  return { prompt, mode: mode ?? null, seed: seed === undefined ? null : Number(seed) };
}

/** Returns an address that asks this question. */
export function questionLink(address: string, { prompt, mode, seed }: LinkedQuestion): string {
  const link = new URL(address);
  const values = { q: prompt.slice(0, LONGEST), mode, seed: seed === null ? null : String(seed) };
  link.search = "";
  link.hash = "";
  for (const [name, value] of Object.entries(values)) {
    if (value !== null) link.searchParams.set(name, value);
  }
  return link.href;
}
