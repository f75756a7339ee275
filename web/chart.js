// A card with the latest number and a small line chart of those before it.
import {element} from "./dom.js";

const kWidth = 240;
const kHeight = 64;
const kSvg = "http://www.w3.org/2000/svg";

function svg(name, attributes) {
  const node = document.createElementNS(kSvg, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

export class Chart {
  /// card: {title, format(number), most: fixed upper end, least: smallest upper end}
  constructor(card, samples) {
    this.card = card;
    this.samples = samples;
    this.values = [];
    this.now = element("strong", {textContent: "–"});
    this.peak = element("span", {className: "peak"});
    this.area = svg("path", {class: "area"});
    this.line = svg("polyline", {class: "line"});
    this.picture = svg("svg", {viewBox: `0 0 ${kWidth} ${kHeight}`, preserveAspectRatio: "none", role: "img"});
    this.picture.append(svg("line", {class: "base", x1: 0, x2: kWidth, y1: kHeight - 1, y2: kHeight - 1}), this.area, this.line);
    this.node = element("figure", {className: "card"}, element("figcaption", {textContent: card.title}),
                        element("div", {className: "numbers"}, this.now, this.peak), this.picture);
  }

  add(value) {
    this.values.push(value);
    if (this.values.length > this.samples) this.values.shift();
    const {format, most, least = 0, title} = this.card;
    const highest = Math.max(...this.values);
    const top = most ?? (Math.max(highest * 1.1, least) || 1);
    const step = kWidth / (this.samples - 1);
    const begin = kWidth - (this.values.length - 1) * step;
    const points = this.values.map((v, i) => [begin + i * step, kHeight - 2 - (kHeight - 6) * v / top]);
    const path = points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
    this.line.setAttribute("points", path);
    this.area.setAttribute("d", `M${begin.toFixed(1)},${kHeight} L${path} L${kWidth},${kHeight} Z`);
    this.now.textContent = format(value);
    this.peak.textContent = `highest ${format(highest)}`;
    this.picture.setAttribute("aria-label", `${title}: now ${format(value)}, highest ${format(highest)} of the last two minutes`);
  }
}
