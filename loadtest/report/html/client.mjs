// Draws the charts of the page from the JSON beside it. Runs in the browser, with uPlot loaded before.
(() => {
  const charts = JSON.parse(document.getElementById('data').textContent);
  const css = getComputedStyle(document.documentElement);
  const color = (name) => css.getPropertyValue(`--${name}`).trim() || '#888';

  const short = (value) => (Math.abs(value) >= 100 ? Math.round(value) : Number(value.toPrecision(3)));
  const units = {
    ms: (value) =>
      value < 1
        ? `${short(value * 1000)} µs`
        : value < 1000
          ? `${short(value)} ms`
          : `${short(value / 1000)} s`,
    perSecond: (value) => `${short(value)}/s`,
    number: (value) => String(short(value)),
    bytes: (value) => {
      const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
      let name = 0;
      let scaled = value;
      while (scaled >= 1024 && name < names.length - 1) {
        scaled /= 1024;
        name += 1;
      }
      return `${short(scaled)} ${names[name]}`;
    },
  };
  const seconds = (value) =>
    value >= 60
      ? `${Math.floor(value / 60)}:${String(Math.round(value % 60)).padStart(2, '0')}`
      : `${short(value)} s`;
  // Steps of a clock, not of ten.
  const steps = [
    0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400,
  ];
  // x counts nines: 0 is the minimum, 1 is p90, 2 is p99.
  const percentile = (nines) =>
    `p${Number((100 * (1 - 10 ** -nines)).toPrecision(Math.max(2, Math.ceil(nines) + 1)))}`;

  const powersOfTwo = Array.from({ length: 50 }, (_, power) => 2 ** power);

  // Sums each curve with those below it, top first for uPlot's bands.
  const stack = (curves) => {
    const sums = new Array(curves[0].values.length).fill(0);
    return curves
      .map((curve) => ({
        ...curve,
        raw: curve.values,
        values: curve.values.map((value, index) => {
          if (value === null) return null;
          sums[index] += value;
          return sums[index];
        }),
      }))
      .reverse();
  };

  const draw = (chart) => {
    const figure = document.getElementById(`chart-${chart.id}`);
    if (figure === null) return;
    figure.hidden = false;
    const place = figure.querySelector('.plot');
    const curves = chart.isStacked ? stack(chart.curves) : chart.curves;
    const positive = curves.some((curve) => curve.values.some((value) => value !== null && value > 0));
    const isLog = chart.isLog && positive;
    const format = units[chart.y];
    const isSparse = chart.xs.length < 40;
    const axis = {
      stroke: color('dim'),
      grid: { stroke: color('line'), width: 1 },
      ticks: { stroke: color('line'), width: 1 },
    };
    const options = {
      width: place.clientWidth,
      height: chart.id === 'latency' ? 300 : 230,
      cursor: { points: { size: 6 } },
      legend: { live: true },
      scales: {
        x: { time: false },
        y: isLog
          ? {
              distr: 3,
              range: (_plot, min, max) => [
                10 ** Math.floor(Math.log10(min)),
                10 ** Math.ceil(Math.log10(max * 1.01)),
              ],
            }
          : { range: (_plot, _min, max) => [0, max > 0 ? max * 1.08 : 1] },
      },
      axes: [
        {
          ...axis,
          incrs: chart.x === 'percentile' ? undefined : steps,
          splits:
            chart.x === 'percentile'
              ? () => [0, 0.30103, 1, 1.30103, 2, 3, 4, 5].filter((nines) => nines <= chart.xs.at(-1) + 0.01)
              : undefined,
          values: (_plot, ticks) =>
            ticks.map(
              chart.x === 'percentile' ? (nines) => (nines === 0 ? 'min' : percentile(nines)) : seconds,
            ),
        },
        {
          ...axis,
          size: 64,
          incrs: chart.y === 'bytes' ? powersOfTwo : undefined,
          values: (_plot, ticks) =>
            ticks.map((tick) =>
              tick === null || (isLog && Math.abs(Math.log10(tick) % 1) > 1e-6) ? '' : format(tick),
            ),
        },
      ],
      series: [
        {
          label: chart.x === 'percentile' ? 'percentile' : 'time',
          value: (_plot, value) =>
            value === null ? '–' : chart.x === 'percentile' ? percentile(value) : seconds(value),
        },
        ...curves.map((curve) => ({
          label: curve.label,
          stroke: color(curve.color),
          width: chart.isStacked ? 1 : 1.75,
          dash: curve.label.endsWith(' p99') ? [6, 4] : undefined,
          fill: chart.isStacked ? `${color(curve.color)}cc` : undefined,
          points: { show: isSparse && !chart.isStacked, size: 5 },
          spanGaps: false,
          value: (_plot, value, _series, index) => {
            const shown = chart.isStacked && index !== null ? curve.raw[index] : value;
            return shown === null || shown === undefined ? '–' : format(shown);
          },
        })),
      ],
    };
    // A logarithm has no place for zero.
    const columns = curves.map((curve) =>
      isLog ? curve.values.map((value) => (value === null || value <= 0 ? null : value)) : curve.values,
    );
    const plot = new uPlot(options, [chart.xs, ...columns], place);
    new ResizeObserver(() => {
      if (place.clientWidth !== plot.width)
        plot.setSize({ width: place.clientWidth, height: options.height });
    }).observe(place);
  };

  for (const chart of charts) draw(chart);
  document.documentElement.dataset.drawn = String(charts.length);
})();
