// The metrics view: asks /metrics every two seconds while the page is in sight, and draws the last two minutes.
import {request} from "./api.js";
import {byId, count, element} from "./dom.js";
import {Chart} from "./chart.js";

const kPeriod = 2000;
const kSamples = 60;

function megabytes(bytes) {
  return bytes >= 1 << 30 ? `${(bytes / (1 << 30)).toFixed(2)} GiB` : `${(bytes / (1 << 20)).toFixed(1)} MiB`;
}

/// Prometheus' text: {name: {value, help}}; series with labels are left out.
export function parseMetrics(text) {
  const result = {};
  const helps = {};
  for (const line of text.split("\n")) {
    const help = /^# HELP (\S+) (.*)$/.exec(line);
    if (help) helps[help[1]] = help[2];
    const sample = /^([a-zA-Z_:][\w:]*) (\S+)/.exec(line);
    if (sample) result[sample[1]] = {value: Number(sample[2]), help: helps[sample[1]] ?? sample[1]};
  }
  return result;
}

// Each card: what it shows of two readings that are `seconds` apart. get(name) is the latest, grown(name) the difference.
const kCards = [
  {title: "Generated tokens per second", format: (n) => n.toFixed(1),
   of: ({grown, seconds}) => grown("generated_tokens_total") / seconds},
  {title: "Prompt tokens per second", format: (n) => n.toFixed(1),
   of: ({grown, seconds}) => (grown("prompt_tokens_total") - grown("cached_tokens_total")) / seconds},
  {title: "Prompt tokens reused", most: 100, format: (n) => `${n.toFixed(0)} %`,
   of: ({get}) => 100 * get("cached_tokens_total") / Math.max(1, get("prompt_tokens_total"))},
  {title: "Requests running", least: 4, format: count, of: ({get}) => get("requests_running")},
  {title: "Requests waiting", least: 4, format: count, of: ({get}) => get("requests_waiting")},
  {title: "Prefix cache in memory", format: megabytes, of: ({get}) => get("prefix_cache_bytes")},
];

export class Metrics {
  constructor() {
    this.charts = kCards.map((card) => new Chart(card, kSamples));
    byId("cards").replaceChildren(...this.charts.map((chart) => chart.node));
    this.last = null;
    this.started = false;
  }

  start() {
    if (this.started) return;
    this.started = true;
    this.poll();
    setInterval(() => this.poll(), kPeriod);
  }

  async poll() {
    if (document.hidden) return;
    try {
      const text = await (await request("/metrics")).text();
      this.add(parseMetrics(text), performance.now());
    } catch {
      // the notice at the top says what is wrong; the charts stand still meanwhile
    }
  }

  add(values, time) {
    const get = (name) => values[`lily_${name}`]?.value ?? 0;
    const old = this.last;
    const grown = (name) => Math.max(0, get(name) - (old?.values[`lily_${name}`]?.value ?? get(name)));
    const reading = {get, grown, seconds: old ? (time - old.time) / 1000 : 1};
    kCards.forEach((card, i) => this.charts[i].add(card.of(reading)));
    this.last = {values, time};
    byId("counters").replaceChildren(...Object.values(values).map(({value, help}) => element("tr", {},
      element("th", {scope: "row", textContent: help}),
      element("td", {textContent: Number.isInteger(value) ? count(value) : value.toFixed(2)}))));
  }
}
