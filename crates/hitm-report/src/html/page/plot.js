// Curves and dots with intervals.

/** Round values for an axis from `low` to `high`. */
function ticks(low, high, about = 5) {
  const span = high - low || Math.abs(high) || 1;
  const step = 10 ** Math.floor(Math.log10(span / about));
  const round = [1, 2, 5, 10].map((by) => by * step).find((by) => span / by <= about) ?? 10 * step;
  const all = [];
  for (let at = Math.ceil(low / round) * round; at <= high + round / 1e6; at += round) all.push(Math.abs(at) < round / 1e6 ? 0 : at);
  return all;
}

/** The marks that tell series apart besides their colour. */
const MARKS = [
  (x, y) => svg('circle', { cx: x, cy: y, r: 3.5 }),
  (x, y) => svg('rect', { x: x - 3.2, y: y - 3.2, width: 6.4, height: 6.4 }),
  (x, y) => svg('path', { d: 'M' + x + ' ' + (y - 4.5) + 'l4.5 8h-9z' }),
  (x, y) => svg('path', { d: 'M' + x + ' ' + (y - 4.8) + 'l4.8 4.8l-4.8 4.8l-4.8-4.8z' }),
  (x, y) => svg('path', { d: 'M' + x + ' ' + (y + 4.5) + 'l4.5-8h-9z' }),
  (x, y) => svg('path', { d: 'M' + (x - 4) + ' ' + (y - 1.2) + 'h2.8v-2.8h2.4v2.8h2.8v2.4h-2.8v2.8h-2.4v-2.8h-2.8z' }),
];

/**
 * Curves over a logarithmic axis of counts. A series has a name and points of x, y and the half
 * width of the interval; `apart` draws single hollow marks, for what was published or measured.
 */
function curves(title, xLabel, yLabel, series) {
  const points = series.flatMap((one) => one.points).filter((point) => point.x > 0 && Number.isFinite(point.y));
  if (points.length === 0) return missing(title + ': there is no point to draw.');
  const [width, height, left, right, top, bottom] = [860, 420, 70, 190, 20, 46];
  const xs = [...new Set(points.map((point) => point.x))].sort((a, b) => a - b);
  const [least, most] = [Math.log2(xs[0]), Math.log2(xs[xs.length - 1])];
  const high = Math.max(...points.map((point) => point.y + (point.interval || 0))) * 1.04 || 1;
  const low = Math.min(0, ...points.map((point) => point.y - (point.interval || 0)));
  const x = (value) => left + (most > least ? (Math.log2(value) - least) / (most - least) : 0.5) * (width - left - right);
  const y = (value) => height - bottom - (value - low) / (high - low) * (height - top - bottom);
  const parts = ticks(low, high).flatMap((at) => [
    svg('line', { x1: left, x2: width - right, y1: y(at), y2: y(at), class: 'rule' }),
    svg('text', { x: left - 8, y: y(at) + 4, 'text-anchor': 'end', class: 'tick' }, short(at)),
  ]);
  let free = -Infinity;
  for (const at of xs) {
    if (x(at) - free < 34) continue;
    free = x(at);
    parts.push(svg('text', { x: x(at), y: height - bottom + 18, 'text-anchor': 'middle', class: 'tick' }, String(at)));
  }
  parts.push(svg('text', { x: (left + width - right) / 2, y: height - 6, 'text-anchor': 'middle', class: 'axis' }, xLabel));
  // Names stand at the ends of their curves, moved apart.
  const ends = series.map((one, number) => ({ one, number, at: y(one.points[one.points.length - 1]?.y ?? 0) })).sort((a, b) => a.at - b.at);
  ends.forEach((end, index) => { if (index > 0) end.at = Math.max(end.at, ends[index - 1].at + 16); });
  const over = Math.max(0, (ends[ends.length - 1]?.at ?? 0) - (height - bottom));
  for (const { one, number, at } of ends) {
    const color = 'series c' + number % 6 + (one.apart ? ' apart' : '');
    const own = one.points.filter((point) => point.x > 0 && Number.isFinite(point.y));
    // Bars of several curves at one place stand beside each other.
    const beside = (number - (series.length - 1) / 2) * 5;
    const line = own.map((point, index) => (index ? 'L' : 'M') + (x(point.x) + beside).toFixed(1) + ' ' + y(point.y).toFixed(1)).join('');
    const marks = own.map((point) => svg('g', { transform: 'translate(' + beside + ' 0)' },
      svg('title', null, one.name + ', ' + point.x + ' ' + xLabel + ': ' + short(point.y) + (point.interval ? ' ±' + short(point.interval) : '')),
      point.interval ? svg('line', { x1: x(point.x), x2: x(point.x), y1: y(point.y - point.interval), y2: y(point.y + point.interval), class: 'interval' }) : null,
      MARKS[number % MARKS.length](x(point.x), y(point.y))));
    const name = one.name.length > 26 ? one.name.slice(0, 25) + '…' : one.name;
    parts.push(svg('g', { class: color }, one.apart ? null : svg('path', { d: line, class: 'curve' }), marks,
      MARKS[number % MARKS.length](width - right + 16, at - over), svg('text', { x: width - right + 26, y: at - over + 4 }, name)));
  }
  return el('figure', null, el('figcaption', null, title + ': ' + yLabel + '. Bars are 95 % intervals.'),
    scrolled(title, svg('svg', { width, height, viewBox: '0 0 ' + width + ' ' + height, class: 'plot', role: 'img', 'aria-label': title + ', ' + yLabel + ' over ' + xLabel + '; the table below has the values' }, parts)));
}

/**
 * One row for each name: a dot with its interval, and a hollow mark for what was published. The
 * upright line is `base`.
 */
function dots(title, rows, base) {
  const values = rows.flatMap((row) => [row.value - (row.interval || 0), row.value + (row.interval || 0), row.published]).filter(Number.isFinite);
  if (values.length === 0) return missing(title + ': there is no figure to draw.');
  const [least, most] = [Math.min(base, ...values), Math.max(base, ...values)];
  const pad = (most - least || 0.1) * 0.06;
  const longest = Math.min(46, Math.max(...rows.map((row) => row.name.length)));
  const [left, width, line] = [20 + 7.2 * longest, 300 + 20 + 7.2 * longest + 60, 24];
  const height = rows.length * line + 40;
  const x = (value) => left + (value - least + pad) / (most - least + 2 * pad) * (width - left - 60);
  const parts = ticks(least, most, 4).flatMap((at) => [
    svg('line', { x1: x(at), x2: x(at), y1: 4, y2: height - 30, class: 'rule' }),
    svg('text', { x: x(at), y: height - 12, 'text-anchor': 'middle', class: 'tick' }, at.toFixed(most - least < 0.5 ? 2 : 1)),
  ]);
  parts.push(svg('line', { x1: x(base), x2: x(base), y1: 4, y2: height - 30, class: 'base' }));
  rows.forEach((row, index) => {
    const at = 16 + index * line;
    const name = row.name.length > longest ? row.name.slice(0, longest - 1) + '…' : row.name;
    const text = row.name + ': ' + factor(row.value, row.interval) + (Number.isFinite(row.published) ? ', published ' + row.published.toFixed(3) : '');
    parts.push(svg('g', { class: 'series c0' }, svg('title', null, text), svg('text', { x: left - 12, y: at + 4, 'text-anchor': 'end' }, name),
      row.interval ? svg('line', { x1: x(row.value - row.interval), x2: x(row.value + row.interval), y1: at, y2: at, class: 'interval' }) : null,
      Number.isFinite(row.value) ? MARKS[0](x(row.value), at) : null,
      svg('text', { x: width - 52, y: at + 4, class: 'value' }, Number.isFinite(row.value) ? row.value.toFixed(3) : '-')));
    if (Number.isFinite(row.published)) parts.push(svg('g', { class: 'series c1 apart' }, svg('title', null, text), MARKS[3](x(row.published), at)));
  });
  const label = title + ': ' + rows.map((row) => row.name + ' ' + factor(row.value, row.interval)).join('; ');
  return scrolled(title, svg('svg', { width, height, viewBox: '0 0 ' + width + ' ' + height, class: 'plot', role: 'img', 'aria-label': label }, parts));
}
