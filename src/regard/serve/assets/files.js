// Translation of a file, line by line.
import { postWithRetry } from "./requests.js";

const [MAX_LINES, MAX_CHARACTERS] = [50, 20_000]; // of a file, sent in one request

const $ = (id) => document.getElementById(id);

export async function translateFile(file, model, status) {
  if (!file) return;
  const lines = (await file.text()).split("\n"), out = [];
  $("job").hidden = false;
  $("download").hidden = true;
  $("jobname").textContent = file.name;
  try {
    while (out.length < lines.length) {
      const some = lines.slice(out.length, out.length + MAX_LINES);
      while (some.length > 1 && some.join("").length > MAX_CHARACTERS) some.pop();
      const answer = await (await postWithRetry("/v1/translate", { text: some, model: model.name })).json();
      out.push(...answer.translations.map((one) => one.text));
      $("progress").value = out.length / lines.length;
    }
    const link = $("download");
    URL.revokeObjectURL(link.href);
    link.href = URL.createObjectURL(new Blob([out.join("\n")], { type: "text/plain" }));
    link.download = file.name.replace(/(\.[^.]*)?$/, `.${model.target ?? "translated"}$1`);
    link.hidden = false;
    link.focus();
  } catch (problem) {
    status(problem.message);
  }
}
