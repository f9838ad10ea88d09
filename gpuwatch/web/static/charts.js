// Large charts with uPlot. The server sends ticks with labels in the configured zone, so the browser's zone is never shown.
"use strict";
(() => {
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const usd = (v) => "$" + v.toFixed(v < 1 ? 3 : 2);
  const formats = {
    usd, percent: (v) => Math.round(v) + " %", plain: (v) => (v === 0 ? "0" : v >= 1000 ? Math.round(v).toLocaleString("en-GB") : v.toPrecision(3)),
  };
  function hatch(ctx, ratio) {
    const tile = document.createElement("canvas"), size = 6 * ratio;
    tile.width = tile.height = size;
    const pen = tile.getContext("2d");
    pen.strokeStyle = css("--hatch"); pen.lineWidth = ratio; pen.beginPath();
    pen.moveTo(0, size); pen.lineTo(size, 0); pen.moveTo(-ratio, ratio); pen.lineTo(ratio, -ratio); pen.moveTo(size - ratio, size + ratio); pen.lineTo(size + ratio, size - ratio); pen.stroke();
    return ctx.createPattern(tile, "repeat");
  }
  function read(text) { // times: the first, then [step, how often]
    const given = JSON.parse(text), [at, ...runs] = given.x;
    given.x = at === undefined ? [] : [at];
    for (const [step, times] of runs) for (let k = 0; k < times; k++) given.x.push(given.x.at(-1) + step);
    return given;
  }
  function draw(place) {
    let given = read(place.dataset.chart);
    const format = formats[given.format] ?? formats.plain, texts = JSON.parse(document.body.dataset.texts);
    const when = new Intl.DateTimeFormat(document.documentElement.lang === "en" ? "en-GB" : document.documentElement.lang, { timeZone: given.zone, weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
    const font = (weight) => `${weight} 12px ${getComputedStyle(document.body).fontFamily}`;
    const look = {
      low: { stroke: css("--accent"), width: 2 }, median: { stroke: css("--median"), width: 1.25, dash: [1, 3], cap: "round" }, edge: { stroke: "transparent", width: 0 },
      area: { stroke: css("--accent"), width: 1.75, fill: css("--accent-soft") }, line: { stroke: css("--accent"), width: 1.5 }, faint: { stroke: css("--median"), width: 1, dash: [4, 3] },
    };
    const small = place.classList.contains("small"), axis = { stroke: css("--muted"), font: font(400), ticks: { show: false }, gap: 6 };
    const step = given.steps ? uPlot.paths.stepped({ align: 1 }) : uPlot.paths.linear();
    const bands = given.band ? [{ series: given.band, fill: css("--band") }] : [];
    const readoutOf = () => place.closest(".panel")?.querySelector("[data-readout]");
    let readout = readoutOf(), rest = readout?.innerHTML ?? "";
    // as many tick labels as fit, the newest always
    const thinned = () => {
      if (!given.ticks) return [];
      const room = (place.clientWidth - 60) / given.ticks.length, every = Math.max(1, Math.ceil(56 / room)), last = given.ticks.length - 1;
      return given.ticks.filter((_, k) => (last - k) % every === 0);
    };
    const options = {
      width: place.clientWidth, height: place.clientHeight, padding: [8, given.pad ?? 12, 0, 0], bands, legend: { show: false },
      cursor: { y: false, points: { size: 7 }, drag: { x: false, y: false }, sync: given.sync ? { key: given.sync } : undefined },
      scales: { x: { time: false, range: given.y ? given.range : undefined }, y: { range: given.y ?? given.range } },
      axes: [
        { ...axis, size: 26, splits: () => thinned().map((t) => t[0]), values: () => thinned().map((t) => t[1]), grid: { stroke: css("--line"), width: 1 } },
        { ...axis, size: given.format === "usd" ? 50 : 46, splits: given.yticks ? () => given.yticks : undefined, values: (u, all) => all.map(format), grid: { stroke: css("--line"), width: 1 } },
      ],
      series: [{}, ...given.series.map((s) => ({ label: s.label, ...(look[s.look] ?? look.line), paths: step, spanGaps: false, points: { show: false } }))],
      hooks: {
        drawClear: [(u) => {
          const { ctx, bbox } = u, ratio = uPlot.pxRatio, pattern = hatch(ctx, ratio);
          for (const [from, to] of given.gaps ?? []) {
            const a = u.valToPos(from, "x", true), b = u.valToPos(to, "x", true);
            ctx.fillStyle = pattern; ctx.fillRect(a, bbox.top, b - a, bbox.height);
          }
        }],
        draw: [(u) => {
          const { ctx, bbox } = u, ratio = uPlot.pxRatio;
          ctx.save();
          for (const one of given.limits ?? []) {
            const y = u.valToPos(one.value, "y", true), color = css(one.quiet ? "--muted" : "--limit");
            ctx.strokeStyle = color; ctx.lineWidth = 1.5 * ratio; ctx.setLineDash([5 * ratio, 3 * ratio]);
            ctx.beginPath(); ctx.moveTo(bbox.left, y); ctx.lineTo(bbox.left + bbox.width, y); ctx.stroke();
            ctx.font = `600 ${12 * ratio}px ${getComputedStyle(document.body).fontFamily}`; ctx.textBaseline = "middle"; ctx.textAlign = "left";
            const wide = ctx.measureText(one.label).width, x = one.at === "left" ? bbox.left + 6 * ratio : bbox.left + bbox.width - wide - 6 * ratio, ty = y + (one.below ? 11 : -11) * ratio;
            ctx.fillStyle = css("--surface"); ctx.globalAlpha = 0.85; ctx.fillRect(x - 3 * ratio, ty - 8 * ratio, wide + 6 * ratio, 16 * ratio); ctx.globalAlpha = 1;
            ctx.fillStyle = color; ctx.fillText(one.label, x, ty);
          }
          ctx.setLineDash([]);
          for (const [at, kind] of given.marks ?? []) {
            const x = u.valToPos(at, "x", true), y = bbox.top + bbox.height, s = 5 * ratio;
            ctx.fillStyle = css(kind === "rent" ? "--good" : "--limit"); ctx.beginPath();
            if (kind === "rent") ctx.rect(x - s * 0.8, y - 2.2 * s, s * 1.6, s * 1.6); else { ctx.moveTo(x, y - 2 * s); ctx.lineTo(x - s, y - 0.3 * s); ctx.lineTo(x + s, y - 0.3 * s); }
            ctx.fill();
          }
          ctx.restore();
        }],
        setCursor: [(u) => {
          if (!readout) return;
          const at = u.cursor.idx;
          if (at == null) { readout.innerHTML = rest; return; }
          readout.replaceChildren(when.format(new Date(u.data[0][at] * 1000)));
          [...given.series.keys()].reverse().forEach((k) => {
            const s = given.series[k], value = u.data[k + 1][at], part = document.createElement("span"), bold = document.createElement("b");
            bold.textContent = value == null ? texts.unknown : format(value); part.append(s.label + " ", bold); readout.append(part);
          });
        }],
      },
    };
    place.replaceChildren();
    place.dataset.drawn = "yes";
    const chart = new uPlot(options, [given.x, ...given.series.map((s) => s.values)], place);
    place.onkeydown = (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!move) return;
      event.preventDefault();
      const at = Math.min(given.x.length - 1, Math.max(0, (chart.cursor.idx ?? given.x.length - 1) + move));
      chart.setCursor({ left: chart.valToPos(given.x[at], "x"), top: 10 });
    };
    chart.take = (text) => { // newer data: the cursor stays
      const at = chart.cursor.left;
      place.dataset.chart = text;
      given = read(text);
      chart.setData([given.x, ...given.series.map((s) => s.values)]);
      // the region around it is replaced after this event
      setTimeout(() => { readout = readoutOf(); rest = readout?.innerHTML ?? ""; if (at >= 0) chart.setCursor({ left: at, top: 10 }); });
    };
    return chart;
  }
  const drawAll = () => {
    for (const place of document.querySelectorAll("[data-chart]:not([data-drawn])")) {
      let chart = draw(place);
      new ResizeObserver(() => chart.setSize({ width: place.clientWidth, height: place.clientHeight })).observe(place);
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { chart.destroy(); chart = draw(place); });
      place.addEventListener("gpuwatch:data", (event) => chart.take(event.detail));
    }
  };
  if (!window.uPlot) return;
  document.fonts.ready.then(drawAll);
  document.addEventListener("gpuwatch:refreshed", drawAll);
})();
