// Draws every [data-chart] element with uPlot; a table on the page has the same figures.
"use strict";
(() => {
  const draw = () => {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const zone = document.documentElement.dataset.zone; // as the texts of the page, not as the browser
    const colors = ["--link", "--dim", "--good", "--dim"];
    for (const place of document.querySelectorAll("[data-chart]")) {
      if (place.dataset.drawn || !window.uPlot) continue;
      place.dataset.drawn = "yes";
      const given = JSON.parse(place.dataset.chart);
      const axis = { stroke: color("--text"), grid: { stroke: color("--line"), width: 1 } };
      // for a single point, the library would draw an axis of years
      const [first, last] = [given.x[0], given.x[given.x.length - 1]];
      const x = first === last ? { range: [first - 1800, first + 1800] } : {};
      const y = given.range ? { range: given.range } : {};
      const chart = new uPlot({
        width: place.clientWidth, height: 260, scales: { x, y },
        tzDate: (at) => uPlot.tzDate(new Date(at * 1000), zone),
        series: [{}, ...given.series.map((one, index) => ({
          label: one.label, stroke: color(colors[index % colors.length]), width: index === 0 || index === 2 ? 2 : 1,
          dash: index % 2 ? [4, 4] : undefined, spanGaps: false,
        }))],
        axes: [axis, { ...axis, label: given.unit }],
      }, [given.x, ...given.series.map((one) => one.values)], place);
      new ResizeObserver(() => chart.setSize({ width: place.clientWidth, height: 260 })).observe(place);
    }
  };
  draw();
  document.addEventListener("gpuwatch:refreshed", draw);
})();
