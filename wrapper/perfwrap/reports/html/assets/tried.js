// What changes were worth when perfwrap try measured them.

function drawTried() {
  if (!data.tried) return;
  const { table, edits, predictions } = data.tried;
  byId('tried').hidden = false;
  byId('tried').append(
    ...heading('tried', 'Measured changes', 'Each variant is the unmodified program with one injected change; the runs alternate with the unchanged program. A ratio below 1 is faster; its 95 % interval is in brackets.'),
    drawnTable(table),
    element('ul', { class: 'small quiet' }, predictions.map((words) => element('li', {}, sentence(words)))),
    edits.map((edit) => [element('h3', {}, 'Edit for ' + edit.name), element('pre', { class: 'lines diff' }, edit.text)]));
}
