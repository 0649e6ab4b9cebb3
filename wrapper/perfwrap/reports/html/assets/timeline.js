// One figure with one time axis: whatever is zoomed, all of it is.

const whole = [0, data.seconds];
const view = { range: whole.slice(), claim: null, log: false };
const TALL = { steps: 170, parts: 190, states: 150 };
const SYMBOLS = ['triangle-down', 'square', 'diamond', 'cross', 'star', 'hexagon', 'bowtie', 'hourglass', 'x', 'pentagon', 'triangle-up', 'octagon'];
let panels = null;

function prepared() {
  if (panels) return panels;
  panels = data.panels.map((panel) => Object.assign({}, panel, {
    layers: panel.layers ? panel.layers.map(opened) : null,
    traces: panel.traces ? panel.traces.map((trace) => Object.assign({}, trace, { levels: trace.levels.map(opened) })) : null,
  }));
  return panels;
}

function hasTimeline() {
  return data.panels.length > 0;
}

function buildTimeline() {
  if (!hasTimeline()) return;
  byId('time').hidden = false;
  const press = (text, title, click) => element('button', { title, click }, text);
  byId('time').append(
    ...heading('time', 'Over time', 'Seconds since the start of the run; a chart is empty where nothing was recorded. Drag to zoom all charts. Double-click for the whole run.'),
    element('div', { class: 'buttons' },
      press('Whole run', 'Key 0', () => zoom(...whole)),
      press('Zoom in', 'Key +', () => zoomBy(0.5)),
      press('Zoom out', 'Key -', () => zoomBy(2)),
      press('◀', 'Key ←', () => pan(-0.4)), press('▶', 'Key →', () => pan(0.4)),
      slowestStep() ? press('Slowest step', '', () => zoom(...slowestStep())) : '',
      data.panels.some((panel) => panel.id === 'steps') ? element('button', { id: 'log', 'aria-pressed': 'false', click: changeLog }, 'Log scale of step time') : '',
      element('span', { class: 'quiet small', id: 'shown', role: 'status' })),
    element('div', { class: 'chart', id: 'time-chart' }));
  charts.push(drawTimeline);
}

function drawTimeline() {
  const [from, to] = view.range;
  const rows = timelineRows();
  const traces = rows.flatMap((row, place) => row.traces.map((trace) => Object.assign(trace, {
    xaxis: 'x', yaxis: place ? 'y' + (place + 1) : 'y', legend: place ? 'legend' + (place + 1) : 'legend',
  })));
  Plotly.react('time-chart', traces, timelineLayout(rows), CONFIG);
  const chart = byId('time-chart');
  if (!chart.dataset.wired) {
    chart.dataset.wired = 'yes';
    chart.on('plotly_relayout', followZoom);
    chart.on('plotly_click', zoomToMark);
  }
  byId('shown').textContent = 'Shown: ' + fixed(from, 6) + ' s to ' + fixed(to, 6) + ' s';
}

function timelineRows() {
  const rows = prepared().map((panel) => ({
    title: panel.title + ' [' + panel.unit + ']' + (panel.note && !isNarrow() ? ' · ' + fixed(panel.note, 9) + ' steps were counted without details; their mean is shown' : ''),
    height: TALL[panel.id] || 110, panel, traces: panel.layers ? stacked(panel) : curves(panel),
  }));
  if (data.marks.length) {
    rows.splice(1, 0, { title: 'Events: epochs, slow steps, checkpoints, …', height: 14 + 17 * data.marks.length, marks: true, traces: data.marks.map(markTrace) });
  }
  return rows;
}

function curves(panel) {
  return panel.traces.flatMap((trace, place) => {
    const found = fitting(trace.levels, ...view.range);
    const steps = panel.end !== undefined;
    const taken = (values, last) => (steps ? held(values, found, last) : cut(values, found));
    const hue = curve(CURVES[place % CURVES.length]);
    const x = taken(found.level.x, panel.end);
    const base = { type: 'scatter', mode: 'lines', x, name: plain(trace.name, 40), hovertemplate: '%{y:.4~g} ' + panel.unit };
    const shape = steps ? 'hv' : 'linear';
    if (trace.markers) {
      return [Object.assign(base, { y: taken(found.level.y), mode: 'markers', marker: { color: '#d55e00', symbol: 'x', size: 6 } })];
    }
    const line = Object.assign({}, base, {
      mode: x.length < 3 ? 'lines+markers' : 'lines', y: taken(found.level.y), line: { color: hue, width: 1.4, shape }, showlegend: panel.traces.length > 1 || panel.id.startsWith('gpu'),
    });
    if (!trace.band || !found.level.high) return [line];
    const edge = Object.assign({}, base, { line: { width: 0, shape }, showlegend: false });
    return [
      Object.assign({}, edge, { y: taken(found.level.high), name: 'most' }),
      Object.assign({}, edge, { y: taken(found.level.low), name: 'least', fill: 'tonexty', fillcolor: hue + '44' }),
      Object.assign(line, { name: trace.name === 'step time' ? 'median' : line.name }),
    ];
  });
}

function stacked(panel) {
  const found = fitting(panel.layers, ...view.range);
  const x = held(found.level.x, found, panel.end);
  const hues = panel.id === 'states' ? STATES : PARTS;
  const traces = Object.entries(found.level.parts).map(([part, values]) => {
    const hue = hues[part] || '#c0c6cc';
    return {
      type: 'scatter', mode: 'lines', stackgroup: 'one', x, y: held(values, found), name: plain(panel.words ? panel.words[part] : part, 40), fillcolor: hue,
      line: { width: 0, color: hue, shape: 'hv' }, hovertemplate: '%{y:.4~g} ' + panel.unit, showlegend: panel.id === 'states' || !isNarrow(),
    };
  });
  const claim = found.level.claims && found.level.claims[view.claim];
  if (claim) {
    traces.push({
      type: 'scatter', mode: 'lines', x, y: held(claim, found), name: 'finding ' + (view.claim + 1) + ' explains' + ofRank(view.claim),
      line: { color: colour('ink'), width: 1.6, dash: 'dot', shape: 'hv' }, hovertemplate: '%{y:.4~g} ' + panel.unit,
    });
  }
  return traces;
}

function markTrace(mark, place) {
  const look = Object.keys(MARKS).indexOf(mark.kind);
  const more = mark.count > mark.x.length ? ' (the longest ' + mark.x.length + ' of ' + mark.count + ')' : '';
  return {
    type: 'scatter', mode: 'markers', cliponaxis: false, x: mark.x, y: mark.x.map(() => -place), name: plain(mark.kind + more, 60), customdata: mark.seconds,
    text: mark.text.map((text) => plain(text, 70)), hovertemplate: '%{text}<extra></extra>', showlegend: false,
    marker: { symbol: SYMBOLS[Math.max(0, look) % SYMBOLS.length], color: curve(MARKS[mark.kind] || CURVES[0]), size: 9, line: { width: 0.5, color: colour('paper') } },
  };
}

function ofRank(number) {
  const ranks = data.findings[number].ranks;
  return ranks.length === 1 && data.ranks ? ' (rank ' + ranks[0] + ')' : '';
}

// Room for the title, and for the legend below it where it does not fit beside it: in one row, else in columns of one width.
function gapAbove(row) {
  const items = row.traces.filter((trace) => trace.showlegend !== false).map((trace) => 48 + 6.5 * trace.name.length);
  const inOneRow = items.reduce((sum, item) => sum + item, 0);
  const room = (onPage ? PAPER_WIDTH : byId('time-chart').clientWidth) - (isNarrow() ? 56 : 70);
  if (!isNarrow() && inOneRow + 8 * row.title.length <= room) return 36;
  const rows = inOneRow <= room ? Math.ceil(inOneRow / room) : Math.ceil(items.length / Math.max(1, Math.floor(room / Math.max(...items))));
  return (isNarrow() ? 40 : 36) + 20 * rows;
}

function timelineLayout(rows) {
  const gaps = rows.map(gapAbove);
  const inner = rows.reduce((sum, row, place) => sum + row.height + gaps[place], 0);
  const made = layout({
    height: inner + 40, margin: { l: isNarrow() ? 46 : 60, r: 10, t: 4, b: 36 }, hovermode: 'x unified',
    dragmode: isNarrow() ? false : 'zoom', annotations: [], shapes: [],
  });
  let above = 0;
  rows.forEach((row, place) => {
    const gap = gaps[place];
    const top = 1 - (above + gap) / inner;
    const bottom = 1 - (above + gap + row.height) / inner;
    const name = 'yaxis' + (place ? place + 1 : '');
    made[name] = axis({ domain: [bottom, top], fixedrange: true, rangemode: 'tozero', nticks: 4, anchor: 'x', hoverformat: '.4~g' });
    if (row.marks) {
      Object.assign(made[name], { range: [0.6 - data.marks.length, 0.6], showgrid: false, tickvals: data.marks.map((mark, number) => -number),
        ticktext: data.marks.map((mark) => plain(short(mark.kind, isNarrow() ? 7 : 18), 40)), tickfont: { size: 10, color: colour('quiet') } });
    }
    if (row.panel && row.panel.id === 'states') made[name].range = [0, 100];
    if (row.panel && row.panel.id === 'steps' && view.log) made[name].type = 'log';
    made.annotations.push({ xref: 'paper', yref: 'paper', x: 0, y: top, yshift: gap - (isNarrow() ? 26 : 36), xanchor: 'left', yanchor: 'bottom', showarrow: false,
      text: '<b>' + plain(row.title, isNarrow() ? 50 : 140) + '</b>', font: { size: 12.5 } });
    made[place ? 'legend' + (place + 1) : 'legend'] = { orientation: 'h', x: isNarrow() ? 0 : 1, xanchor: isNarrow() ? 'left' : 'right', y: top,
      yanchor: 'bottom', bgcolor: 'rgba(0,0,0,0)', font: { size: 11 }, tracegroupgap: 0, traceorder: 'normal', itemsizing: 'constant' };
    above += row.height + gap;
  });
  if (data.marks.some((mark) => mark.kind.length > 9) && !isNarrow()) made.margin.l = 118;
  made.xaxis = axis({ range: view.range.slice(), autorange: false, ticksuffix: ' s', anchor: 'y' + rows.length, showspikes: true, spikemode: 'across',
    spikethickness: 1, spikecolor: colour('quiet'), spikedash: 'dot', hoverformat: '.6~g', fixedrange: false });
  made.shapes = epochLines();
  return made;
}

function epochLines() {
  const epochs = data.marks.find((mark) => mark.kind === 'epoch');
  if (!epochs || epochs.x.length > 60) return [];
  return epochs.x.map((x) => ({ type: 'line', xref: 'x', yref: 'paper', x0: x, x1: x, y0: 0, y1: 1, layer: 'below', line: { color: colour('line'), width: 1, dash: 'dot' } }));
}

function followZoom(event) {
  if (event['xaxis.autorange'] || event.autosize) {
    if (event['xaxis.autorange']) zoom(...whole);
    return;
  }
  const range = event['xaxis.range'] || [event['xaxis.range[0]'], event['xaxis.range[1]']];
  if (range[0] !== undefined && (range[0] !== view.range[0] || range[1] !== view.range[1])) zoom(range[0], range[1]);
}

function zoomToMark(event) {
  const point = event.points.find((found) => found.customdata !== undefined);
  if (!point) return;
  const seconds = Math.max(point.customdata, (view.range[1] - view.range[0]) / 200);
  zoom(point.x - seconds, point.x + 2 * seconds);
}

function zoom(from, to) {
  const least = data.seconds * 1e-7;
  let [begin, end] = [Math.max(whole[0], Math.min(from, to)), Math.min(whole[1], Math.max(from, to))];
  if (!(end - begin >= least)) [begin, end] = whole;
  view.range = [begin, end];
  drawTimeline();
  const all = begin === whole[0] && end === whole[1];
  writeLink(all ? 'time' : 'time/' + Number(begin.toPrecision(9)) + '/' + Number(end.toPrecision(9)));
}

function zoomBy(factor) {
  const [from, to] = view.range;
  const half = (to - from) * factor / 2;
  zoom((from + to) / 2 - half, (from + to) / 2 + half);
}

function pan(share) {
  const [from, to] = view.range;
  const by = Math.max(whole[0] - from, Math.min(whole[1] - to, (to - from) * share));
  zoom(from + by, to + by);
}

function changeLog() {
  view.log = !view.log;
  byId('log').setAttribute('aria-pressed', String(view.log));
  drawTimeline();
}

function slowestStep() {
  const worst = data.lanes.find((lane) => lane.id === 'worst');
  return worst ? [worst.at - worst.seconds, worst.at + 2 * worst.seconds] : null;
}
