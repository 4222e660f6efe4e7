// Lists the endpoints of openapi.json.
import { element } from "./elements.js";

const description = await (await fetch("/openapi.json")).json();
const fieldsOf = (operation) => {
  const schema = operation.requestBody?.content?.["application/json"]?.schema;
  const found = schema?.$ref ? description.components.schemas[schema.$ref.split("/").pop()] : schema;
  return Object.entries(found?.properties ?? {}).map(([name, field]) => name + ((found.required ?? []).includes(name) ? "" : "?") + (field.description ? ` (${field.description})` : ""));
};
for (const [path, methods] of Object.entries(description.paths))
  for (const [method, operation] of Object.entries(methods)) {
    const fields = fieldsOf(operation);
    document.getElementById("endpoints").append(
      element("dt", {}, `${method.toUpperCase()} ${path}`),
      element("dd", {}, operation.description ?? operation.summary ?? ""),
      ...(fields.length ? [element("dd", {}, fields.join(", "))] : []),
    );
  }
