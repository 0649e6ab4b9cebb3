// Step time by rank, as a heat map: rows are ranks, columns are steps.

let shownMap = 'step time';

function buildRanks() {
  if (!data.ranks) return;
  const { maps, rows, heads, together, summary, processes } = data.ranks;
  byId('ranks').hidden = false;
  byId('ranks').append(
    ...heading('ranks', 'Ranks', 'Step time by rank. In synchronous training all ranks take equally long; the late rank is the one that waits least. Choose a part to see it.' +
      (together > 1 ? ' Each column is the mean of ' + together + ' steps.' : '')),
    summary ? element('p', {}, summary) : '',
    processes ? element('p', { class: 'quiet small' }, 'Processes: ' + processes + '.') : '',
    element('div', { class: 'buttons', role: 'group' }, Object.keys(maps).map((name) =>
      element('button', { 'aria-pressed': String(name === shownMap), 'data-map': name, click: () => changeMap(name) }, name))),
    element('div', { class: 'chart', id: 'rank-chart' }),
    drawnTable({ columns: heads, rows, left_out: 0 }));
  charts.push(drawRanks);
}

function changeMap(name) {
  shownMap = name;
  for (const button of byId('ranks').querySelectorAll('[data-map]')) button.setAttribute('aria-pressed', String(button.dataset.map === name));
  drawRanks();
}

function drawRanks() {
  const { maps, names, together, columns, unit } = data.ranks;
  const z = maps[shownMap].map((row) => Array.from(numbers(row), (value) => (Number.isNaN(value) ? null : value)));
  const sorted = z.flat().filter((value) => value !== null).sort((one, other) => one - other);
  Plotly.react('rank-chart', [{
    type: 'heatmap', z, x: Array.from({ length: columns }, (_, place) => place * together), y: names.map((name, place) => place), colorscale: 'Cividis',
    // One very slow step must not make all others look alike.
    zmin: sorted[0], zmax: sorted[Math.floor(0.99 * (sorted.length - 1))], colorbar: { thickness: 12, title: { text: unit, side: 'right' }, outlinewidth: 0 },
    text: names.map((name) => Array(columns).fill(plain(name, 40))), hovertemplate: '%{text}, step %{x}: %{z:.4~g} ' + unit + '<extra></extra>',
  }], layout({
    height: Math.min(900, 90 + Math.max(14, Math.min(34, 600 / names.length)) * names.length), margin: { l: 84, r: 8, t: 8, b: 40 }, dragmode: isNarrow() ? false : 'zoom',
    xaxis: axis({ title: { text: 'step', font: { size: 12 } }, showgrid: false }),
    yaxis: axis({ autorange: 'reversed', fixedrange: true, showgrid: false, tickvals: names.map((_, place) => place).filter((_, place) => names.length <= 40 || place % 8 === 0),
      ticktext: names.filter((_, place) => names.length <= 40 || place % 8 === 0).map((name) => plain(short(name, 14), 20)) }),
  }), CONFIG);
}
