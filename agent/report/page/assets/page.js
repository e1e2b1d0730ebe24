
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  root.classList.add("script"); // shows what needs this script, and hides the note that it is missing
  const series = data.series, curves = data.curves, points = data.points;

  // The theme is the reader's, until the button says otherwise.
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const themeButton = document.getElementById("theme");
  let chosen = null;
  function applyTheme() {
    const dark = chosen === null ? prefersDark.matches : chosen;
    root.classList.toggle("dark", dark);
    themeButton.textContent = dark ? "Light" : "Dark";
    themeButton.setAttribute("aria-label", dark ? "Use the light theme" : "Use the dark theme");
    return dark;
  }
  themeButton.hidden = false;
  themeButton.addEventListener("click", () => { chosen = !root.classList.contains("dark"); drawAll(); });
  prefersDark.addEventListener("change", drawAll);

  const color = name => getComputedStyle(root).getPropertyValue("--" + name).trim();

  // format writes a number with three significant digits.
  function format(v) {
    if (v === null || v === undefined || Number.isNaN(v)) return "–";
    const a = Math.abs(v);
    if (a >= 1000) return Math.round(v).toLocaleString("en-US");
    return String(Number(v.toPrecision(3)));
  }
  function ticks(v) {
    if (v === null) return "";
    const a = Math.abs(v);
    if (a >= 1e6) return Number((v / 1e6).toPrecision(3)) + "M";
    if (a >= 1e4) return Number((v / 1e3).toPrecision(3)) + "k";
    return String(Number(v.toPrecision(6)));
  }

  const charts = [];
  const sync = uPlot.sync("time");

  // logarithmic puts lines at powers of ten, and where there are few of these, at twice and five times them.
  const logarithmic = {
    splits: (u, axis, low, high) => {
      const steps = high / low > 1000 ? [1] : [1, 2, 5], at = [];
      for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high); e++) {
        for (const step of steps) {
          const v = Number((step * 10 ** e).toPrecision(1));
          if (v >= low && v <= high) at.push(v);
        }
      }
      return at;
    },
    filter: (u, splits) => splits,
  };

  function axes(options) {
    const axis = more => ({
      stroke: color("soft"), grid: { stroke: color("grid"), width: 1 }, ticks: { stroke: color("grid"), width: 1 },
      font: "12px system-ui, sans-serif", ...more,
    });
    return [
      axis({ values: (u, vs) => vs.map(v => options.x === "time" ? ticks(v) + " s" : ticks(v)), space: 60, ...(options.x === "log" && logarithmic) }),
      axis({ values: (u, vs) => vs.map(v => options.percent ? ticks(v) + " %" : ticks(v)), size: 56, ...(options.y === "log" && logarithmic) }),
    ];
  }

  // decades is the range of a logarithmic axis: a little more than the values, and a decade at least, so that a line is labelled.
  function decades(u, lo, hi) {
    if (!(lo > 0) || !(hi > 0)) return [1, 10];
    lo /= 1.15; hi *= 1.15;
    const short = Math.sqrt(Math.max(1, 10 * lo / hi));
    return [lo / short, hi * short];
  }

  // positive makes values fit for a logarithmic axis, whose least is a microsecond.
  const positive = values => values.map(v => v === null ? null : Math.max(v, 0.001));

  // draw makes one chart. lines: [{name, values, color, dash, points}]; options.x: time, log or linear.
  function draw(id, x, lines, options) {
    const host = document.getElementById(id);
    if (!host) return;
    lines = lines.filter(l => l.values && l.values.some(v => v !== null));
    if (!x || x.length === 0 || lines.length === 0) {
      host.textContent = "Nothing was measured.";
      host.style.minHeight = "0";
      return;
    }
    host.textContent = "";
    const time = options.x === "time";
    const u = new uPlot({
      width: Math.max(host.clientWidth, 200), height: 220,
      legend: { live: true },
      cursor: {
        drag: { x: true, y: false, setScale: true },
        sync: time ? { key: sync.key, setSeries: false } : undefined,
        points: { size: 6 },
      },
      scales: {
        x: { time: false, distr: options.x === "log" ? 3 : 1, range: options.x === "log" ? decades : (u, lo, hi) => [lo, hi === lo ? lo + 1 : hi] },
        y: {
          distr: options.y === "log" ? 3 : 1,
          range: options.y === "log" ? decades : (u, lo, hi) => [0, options.percent ? 100 : hi > 0 ? hi * 1.05 : 1], // an axis of zeros ends at 1: a tiny end has long labels
        },
      },
      axes: axes(options),
      hooks: { drawClear: time && data.steady ? [shade] : [], draw: time && data.breaks ? [mark] : [] },
      series: [
        { label: options.label || "at", value: (u, v) => v === null ? "–" : time ? format(v) + " s" : format(v) },
        ...lines.map(l => ({
          label: l.name, stroke: color(l.color), width: l.points ? 0 : 1.75, dash: l.dash, spanGaps: !l.points && !options.gaps,
          paths: l.points ? () => null : l.steps ? uPlot.paths.stepped({ align: 1 }) : undefined,
          points: l.points ? { show: true, size: x.length > 2000 ? 2 : 4, fill: color(l.color) + "99", stroke: color(l.color) + "99", width: 0 } : { show: x.length === 1 },
          value: (u, v) => v === null ? "–" : format(v) + (options.percent ? " %" : ""),
        })),
      ],
    }, [x, ...lines.map(l => l.values)], host);
    if (time) sync.sub(u);
    describe(host, x, lines, options);
    host.tabIndex = 0;
    host.onkeydown = event => move(u, event);
    charts.push({ u, host, time });
  }

  // shade marks the steady state, below the lines of a chart.
  function shade(u) {
    const { left, top, width, height } = u.bbox;
    const [from, to] = data.steady.map(s => Math.min(Math.max(u.valToPos(s, "x", true), left), left + width));
    u.ctx.fillStyle = color("soft") + "1a";
    u.ctx.fillRect(from, top, to - from, height);
  }

  // mark draws a line where the run was cut short: what is left and right of it is further apart than it looks.
  function mark(u) {
    const { left, top, width, height } = u.bbox;
    u.ctx.save();
    u.ctx.strokeStyle = color("d");
    u.ctx.lineWidth = Math.max(1, Math.round(devicePixelRatio));
    u.ctx.setLineDash([6, 4]);
    for (const at of data.breaks) {
      const x = Math.round(u.valToPos(at, "x", true));
      if (x < left || x > left + width) continue;
      u.ctx.beginPath();
      u.ctx.moveTo(x, top);
      u.ctx.lineTo(x, top + height);
      u.ctx.stroke();
    }
    u.ctx.restore();
  }

  // describe says in words what a chart shows, for those who cannot see it.
  function describe(host, x, lines, options) {
    const caption = host.parentElement.querySelector("figcaption").textContent;
    const parts = lines.map(l => {
      const known = l.values.filter(v => v !== null);
      let low = Infinity, high = -Infinity;
      for (const v of known) { low = Math.min(low, v); high = Math.max(high, v); }
      return `${l.name}: ${format(low)} to ${format(high)}${options.percent ? " %" : ""}`;
    });
    host.setAttribute("role", "img");
    const cut = options.x === "time" && data.breaks ? ` Cut short and resumed at ${data.breaks.map(at => format(at) + " s").join(", ")}.` : "";
    host.setAttribute("aria-label", `${caption}. ${parts.join("; ")}.${cut}`);
  }

  function move(u, event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (event.key === "Escape") {
      reset();
    } else if (step) {
      const last = u.data[0].length - 1;
      const at = Math.min(Math.max((u.cursor.idx ?? (step > 0 ? -1 : last + 1)) + step, 0), last);
      u.setCursor({ left: u.valToPos(u.data[0][at], "x"), top: u.over.clientHeight / 2 });
    } else {
      return;
    }
    event.preventDefault();
  }

  function reset() {
    for (const { u, time } of charts) if (time) u.setScale("x", { min: u.data[0][0], max: u.data[0][u.data[0].length - 1] });
  }

  // merge puts distribution functions with values of their own onto one x.
  function merge(named) {
    const present = named.filter(n => curves[n.curve]);
    const xs = [...new Set(present.flatMap(n => curves[n.curve].x))].sort((a, b) => a - b);
    const lines = present.map(n => {
      const share = new Map();
      curves[n.curve].x.forEach((x, i) => share.set(x, 100 * curves[n.curve].y[i])); // the last of equal ones is the greatest
      return { ...n, values: xs.map(x => share.has(x) ? share.get(x) : null) };
    });
    return [xs, lines];
  }

  // scatter sorts points by x, as the library needs it.
  function scatter(id, xs, ys, name, options) {
    const order = xs.map((x, i) => i).filter(i => xs[i] >= 0 && ys[i] >= 0).sort((a, b) => xs[a] - xs[b]);
    const on = (log, v) => log === "log" ? Math.max(v, 1) : v;
    const x = order.map(i => on(options.x, xs[i])), y = order.map(i => on(options.y, ys[i]));
    const lines = [{ name, values: y, color: "a", points: true }];
    if (options.diagonal) lines.push({ name: "equal", values: x.slice(), color: "c", dash: [4, 4] });
    draw(id, x, lines, options);
  }

  function drawAll() {
    applyTheme();
    for (const { u, time } of charts.splice(0)) { if (time) sync.unsub(u); u.destroy(); }
    const t = series.time, time = { x: "time" }, duration = { x: "time", y: "log" };
    draw("load", t, [
      { name: "finished", values: series.finished, color: "b" },
      { name: "sent", values: series.sent, color: "a" },
      { name: "scheduled", values: series.intended, color: "text", dash: [2, 3] },
      { name: "not served", values: series.unserved.some(v => v > 0) ? series.unserved : null, color: "d" },
    ], time);
    draw("inflight", t, [
      { name: "in flight", values: series.in_flight, color: "a", steps: true },
      { name: "of these without a token", values: series.waiting, color: "b", steps: true },
    ], time);
    draw("tokens", t, [{ name: "tokens/s", values: series.tokens, color: "a" }], time);
    draw("ttft-time", t, [
      { name: "p50", values: positive(series.ttft_p50), color: "a" },
      { name: "p90", values: positive(series.ttft_p90), color: "c" },
      { name: "p99", values: positive(series.ttft_p99), color: "b" },
    ], duration);
    draw("gap-time", t, [
      { name: "p50", values: positive(series.itl_p50), color: "a" },
      { name: "p99", values: positive(series.itl_p99), color: "b" },
      { name: "p99 of gaps", values: positive(series.gap_p99), color: "e", dash: [4, 4] },
    ], duration);
    draw("late-time", t, [
      { name: "p50", values: positive(series.late_p50), color: "a" },
      { name: "max", values: positive(series.late_max), color: "b" },
    ], duration);
    draw("cache-time", t, [
      { name: "infinite cache", values: series.predicted, color: "c", dash: [4, 4] },
      { name: "this run", values: series.cached, color: "a" },
      { name: "production", values: series.observed, color: "b" },
    ], { x: "time", percent: true });

    const distribution = { x: "log", percent: true, label: "at most (ms)" };
    draw("ttft-curve", ...merge([
      { name: "from the wire", curve: "ttft_wire", color: "c" },
      { name: "from the start", curve: "ttft", color: "a" },
      { name: "from the scheduled time", curve: "ttft_intended", color: "b", dash: [4, 4] },
    ]), distribution);
    draw("gap-curve", ...merge([
      { name: "inter-token latency", curve: "itl", color: "a" },
      { name: "gaps", curve: "gap", color: "e", dash: [4, 4] },
    ]), distribution);
    draw("latency-curve", ...merge([
      { name: "from the start", curve: "latency", color: "a" },
      { name: "from the scheduled time", curve: "latency_intended", color: "b", dash: [4, 4] },
    ]), distribution);
    draw("late-curve", ...merge([{ name: "lateness", curve: "late", color: "a" }]), distribution);

    scatter("ttft-uncached", points.uncached || [], points.ttft || [], "TTFT (ms)", { x: "log", y: "log", label: "uncached tokens" });
    scatter("cache-points", points.predicted || [], points.cached || [], "cached", { x: "linear", label: "predicted", diagonal: true });
  }

  const sampled = document.getElementById("sampled");
  if (sampled) sampled.textContent = data.sampled ? `The points are ${data.sampled}.` : "Each point is a request.";

  const copy = document.getElementById("copy");
  if (copy && navigator.clipboard) {
    copy.hidden = false;
    copy.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(document.getElementById("command").textContent);
        copy.textContent = "Copied";
      } catch {
        copy.textContent = "Copying was refused";
      }
    });
  }

  // Paper shows lists that are closed on the screen, too.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const list of closed) list.open = true;
  });
  addEventListener("afterprint", () => { for (const list of closed) list.open = false; });

  let width = innerWidth, timer;
  addEventListener("resize", () => {
    clearTimeout(timer);
    timer = setTimeout(() => { if (innerWidth !== width) { width = innerWidth; for (const { u, host } of charts) u.setSize({ width: Math.max(host.clientWidth, 200), height: 220 }); } }, 100);
  });
  drawAll();
  root.dataset.ready = "true";
})();
