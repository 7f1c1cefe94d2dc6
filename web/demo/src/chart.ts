/** Speed and tokens per pass of the answers so far, as bars and as a table. */

import { inOrder } from "./board.js";
import { at, make } from "./dom.js";
import { number, rate } from "./numbers.js";
import type { Run } from "./run.js";

/** Answers that the chart has room for. */
const MOST = 24;
const SVG = "http://www.w3.org/2000/svg";
/** Size of a chart, in its own units. */
const [WIDTH, HEIGHT, GAP] = [240, 56, 2];

/** One answer. */
interface Point {
  run: Run;
  rate: number;
  perPass: number;
}

/** Both charts. */
export class Chart {
  readonly #points: Point[] = [];

  /** Takes what an answer cost, so far or in the end. */
  update(run: Run): void {
    const perPass = run.stats?.tokensPerPass ?? (run.stats?.tokens ?? 0) / run.frames.length;
    const point = { run, rate: run.stats?.tokensPerSecond ?? 0, perPass };
    const index = this.#points.findIndex((known) => known.run === run);
    this.#points.splice(index < 0 ? this.#points.length : index, 1, point);
    this.#points.splice(0, this.#points.length - MOST);
    this.#draw();
  }

  #draw(): void {
    bars(
      "chart-rate",
      this.#points,
      (point) => point.rate,
      (value) => `${rate(value)} tok/s`,
    );
    const perPass = (value: number) => `${number(value, 2)} tokens per pass`;
    bars("chart-per-pass", this.#points, (point) => point.perPass, perPass);
    at("chart-rows").replaceChildren(...this.#points.map(row).reverse());
    at("chart-none").hidden = true;
    at("chart").hidden = false;
  }
}

/** Draws a figure with a bar for each point; the last one in words. */
function bars(
  id: string,
  points: readonly Point[],
  value: (point: Point) => number,
  words: (value: number) => string,
): void {
  const most = Math.max(...points.map(value), Number.EPSILON);
  const step = WIDTH / MOST;
  const svg = at(id).querySelector("svg") as SVGSVGElement;
  svg.replaceChildren(
    ...points.map((point, index) => {
      const height = Math.max((HEIGHT * value(point)) / most, 1);
      const place = { x: index * step, y: HEIGHT - height, width: step - GAP, height, rx: 2 };
      return bar(place, inOrder(point.run.mode), `${point.run.mode}: ${words(value(point))}`);
    }),
  );
  const last = words(value(points.at(-1) as Point));
  svg.setAttribute("aria-label", `${points.length} answers, the last one ${last}`);
  (at(id).querySelector("output") as HTMLElement).textContent = last;
}

function bar(place: Record<string, number>, ordered: boolean, says: string): SVGElement {
  const rect = document.createElementNS(SVG, "rect");
  for (const [name, value] of Object.entries(place)) rect.setAttribute(name, String(value));
  rect.setAttribute("class", ordered ? "ordered" : "block");
  const title = document.createElementNS(SVG, "title");
  title.textContent = says;
  rect.append(title);
  return rect;
}

function row({ run, rate: speed, perPass }: Point): HTMLTableRowElement {
  const cells = [run.mode, number(run.stats?.tokens ?? 0), rate(speed), number(perPass, 2)];
  return make("tr", {}, ...cells.map((textContent) => make("td", { textContent })));
}
