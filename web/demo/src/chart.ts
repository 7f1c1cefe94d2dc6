/** Charts and a table of speed and tokens per pass. */

import { isSequential } from "./slots_view.js";
import { byId, createElement } from "./dom.js";
import { formatNumber, formatRate } from "./format.js";
import type { Run } from "./run.js";

/** Maximum number of answers in the chart. */
const MAX_ANSWERS = 24;
const SVG = "http://www.w3.org/2000/svg";
/** Size of a chart and the gap between bars, in units of its view box. */
const [WIDTH, HEIGHT, GAP] = [240, 56, 2];

/** Figures of one answer. */
interface Point {
  run: Run;
  rate: number;
  perPass: number;
}

/** Both charts and the table. */
export class Chart {
  readonly #points: Point[] = [];

  /** Adds an answer, or updates its figures. */
  update(run: Run): void {
    const perPass = run.stats?.tokensPerPass ?? (run.stats?.tokens ?? 0) / run.frames.length;
    const point = { run, rate: run.stats?.tokensPerSecond ?? 0, perPass };
    const index = this.#points.findIndex((known) => known.run === run);
    this.#points.splice(index < 0 ? this.#points.length : index, 1, point);
    this.#points.splice(0, this.#points.length - MAX_ANSWERS);
    this.#draw();
  }

  #draw(): void {
    drawBars(
      "chart-rate",
      this.#points,
      (point) => point.rate,
      (value) => `${formatRate(value)} tok/s`,
    );
    const perPass = (value: number) => `${formatNumber(value, 2)} tokens per pass`;
    drawBars("chart-per-pass", this.#points, (point) => point.perPass, perPass);
    byId("chart-rows").replaceChildren(...this.#points.map(makeRow).reverse());
    byId("chart-none").hidden = true;
    byId("chart").hidden = false;
  }
}

/** Draws a chart with a bar per answer, and the last value as text. */
function drawBars(
  id: string,
  points: readonly Point[],
  value: (point: Point) => number,
  format: (value: number) => string,
): void {
  const most = Math.max(...points.map(value), Number.EPSILON);
  const step = WIDTH / MAX_ANSWERS;
  const svg = byId(id).querySelector("svg") as SVGSVGElement;
  svg.replaceChildren(
    ...points.map((point, index) => {
      const height = Math.max((HEIGHT * value(point)) / most, 1);
      const place = { x: index * step, y: HEIGHT - height, width: step - GAP, height, rx: 2 };
      return makeBar(
        place,
        isSequential(point.run.mode),
        `${point.run.mode}: ${format(value(point))}`,
      );
    }),
  );
  const last = format(value(points.at(-1) as Point));
  svg.setAttribute("aria-label", `${points.length} answers, the last one ${last}`);
  (byId(id).querySelector("output") as HTMLElement).textContent = last;
}

function makeBar(place: Record<string, number>, ordered: boolean, says: string): SVGElement {
  const rect = document.createElementNS(SVG, "rect");
  for (const [name, value] of Object.entries(place)) rect.setAttribute(name, String(value));
  rect.setAttribute("class", ordered ? "ordered" : "block");
  const title = document.createElementNS(SVG, "title");
  title.textContent = says;
  rect.append(title);
  return rect;
}

function makeRow({ run, rate: speed, perPass }: Point): HTMLTableRowElement {
  const cells = [
    run.mode,
    formatNumber(run.stats?.tokens ?? 0),
    formatRate(speed),
    formatNumber(perPass, 2),
  ];
  return createElement(
    "tr",
    {},
    ...cells.map((textContent) => createElement("td", { textContent })),
  );
}
