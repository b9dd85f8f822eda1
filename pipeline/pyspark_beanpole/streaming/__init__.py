"""The state of `beanpole pipeline stream`: a growing export, and its statistics.

    DIR/events/             an export like that of `beanpole events export`: its manifest lists
                            what is committed, and so the position of the stream
    DIR/_parts/A-B.arrow    partial statistics of the events A <= offset < B
    DIR/tables/NAME/        the statistics, one file each

`stream` combines them, `batches` runs in Spark, `pieces` and `tables` handle the files.
"""
