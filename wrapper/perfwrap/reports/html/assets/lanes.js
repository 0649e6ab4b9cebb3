// A step, thread by thread: bars for what was recorded, one inside another.

let lane = 0;

function buildLanes() {
  if (!data.lanes.length) return;
  byId('steps').hidden = false;
  byId('steps').append(
    ...heading('steps', 'Single steps, thread by thread', 'Time since the start of the step; the dotted lines are its start and end. Drag to zoom.'),
    element('div', { class: 'buttons', role: 'group' }, data.lanes.map((found, place) =>
      element('button', { 'aria-pressed': String(place === lane), 'data-lane': found.id, click: () => showLane(place, true) }, found.title))),
    element('div', { class: 'chart', id: 'lane-chart' }),
    element('p', { class: 'quiet small', id: 'lane-note' }));
  charts.push(drawLane);
}

function showLane(place, stay) {
  lane = place;
  for (const [number, button] of byId('steps').querySelectorAll('[data-lane]').entries()) button.setAttribute('aria-pressed', String(number === place));
  drawLane();
  writeLink('steps/' + data.lanes[place].id);
  if (!stay) byId('steps').scrollIntoView();
}

function laneOf(number) {
  return data.lanes.findIndex((found) => found.id === 'finding-' + number);
}

function drawLane() {
  const found = data.lanes[lane];
  const columns = opened(found);
  const tops = [];
  let rows = 0;
  for (const track of found.lanes) { tops.push(rows); rows += track.rows + 0.5; }
  const labels = found.names.map((name) => plain(name, 70));
  const kinds = new Map();
  columns.start.forEach((start, place) => {
    const kind = data.categories[columns.category[place]];
    if (!kinds.has(kind)) kinds.set(kind, { x: [], base: [], y: [], text: [], customdata: [] });
    const trace = kinds.get(kind);
    trace.base.push(start);
    trace.x.push(columns.drawn[place]);
    trace.y.push(-(tops[columns.lane[place]] + columns.depth[place]) - 0.5);
    trace.text.push(labels[columns.label[place]]);
    trace.customdata.push(columns.whole[place]);
  });
  const traces = Array.from(kinds, ([kind, trace]) => Object.assign(trace, {
    type: 'bar', orientation: 'h', name: kind, width: trace.x.map(() => 0.92), textposition: 'none',
    marker: { color: CATEGORIES[kind], line: { color: colour('paper'), width: 0.4 } },
    hovertemplate: '<b>%{text}</b><br>%{customdata:.4~g} ' + found.unit + '<extra>' + kind + '</extra>',
  }));
  const wide = isNarrow() ? 14 : 34;
  Plotly.react('lane-chart', traces, layout({
    height: Math.max(150, 20 * rows + 90), barmode: 'overlay', hovermode: 'closest', dragmode: isNarrow() ? false : 'zoom', uirevision: found.id,
    margin: { l: isNarrow() ? 96 : 210, r: 12, t: 8, b: 34 }, showlegend: true,
    legend: { orientation: 'h', y: 1, yanchor: 'bottom', x: 0, font: { size: 11 } },
    xaxis: axis({ ticksuffix: ' ' + found.unit, range: [-0.03 * found.length, 1.03 * found.length], exponentformat: 'none', separatethousands: true }),
    yaxis: axis({ fixedrange: true, showgrid: false, range: [-rows, 0.2], tickvals: found.lanes.map((track, place) => -(tops[place] + track.rows / 2)),
      ticktext: found.lanes.map((track) => plain(short(track.name, wide), 60)) }),
    shapes: [0, found.length].map((x) => ({ type: 'line', x0: x, x1: x, yref: 'paper', y0: 0, y1: 1, line: { color: colour('quiet'), width: 1, dash: 'dot' } })),
  }), CONFIG);
  byId('lane-note').textContent = found.left_out ? 'The longest ' + fixed(columns.start.length, 9) + ' of ' + fixed(columns.start.length + found.left_out, 9) + ' spans are shown.' : '';
}
